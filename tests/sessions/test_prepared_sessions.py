"""Sessions with lengths and with packed sequences have the bits and the errors of the general path."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import glassgate as gg
from tests.sessions.test_session import flat, made, noise

KINDS = ("lstm", "gru", "projected", "residual", "summed", "mean", "norm", "minimal", "zoneout", "narrow")
CASES = [(kind, "float32") for kind in KINDS]
CASES += [(kind, "float64") for kind in ("lstm", "gru", "summed", "norm")]
CASES += [(kind, "int8") for kind in ("lstm", "projected", "summed", "norm", "minimal", "narrow")]
"""Other precisions change the memory of weights and states, so that they need no further levels or directions."""
LENGTHS = {"with zeros": [6, 0, 3, 1], "shorter": [2, 4, 4, 2], "no steps": [0, 0, 0, 0], "full": [6, 6, 6, 6]}


def general(session, x, hx=None, lengths=None, resets=None, restart=None, return_states=False):
    """Run a call that is not prepared."""
    return session.module._run_general(x, hx, lengths, resets, restart, return_states, None)


def is_prepared(session) -> bool:
    return any(call is not None for call in session.module._prepared.values())


def equal(results, expected) -> bool:
    return all(map(torch.equal, flat(results).values(), flat(expected).values()))


@pytest.mark.parametrize(("kind", "precision"), CASES)
def test_prepared_calls_with_lengths_have_the_bits_of_the_general_path(kind, precision):
    layer = made(kind, dtype=torch.float64 if precision == "float64" else torch.float32)
    session, N, L = gg.freeze(layer, precision), 4, 6
    x = noise(1, *((N, L) if layer.batch_first else (L, N)), layer.input_size).to(layer.weight_ih_l0)
    hx = layer(noise(2, *x.shape).to(x))[1]
    hx = tuple(v.detach() for v in hx) if isinstance(hx, tuple) else hx.detach()
    for lengths in LENGTHS.values():
        for states in (None, hx):
            for given in (lengths, torch.tensor(lengths)):
                assert equal(session(x, states, lengths=given), general(session, x, states, given))
    assert is_prepared(session)
    one = (x[:1], [4]) if layer.batch_first else (x[:, :1].contiguous(), [4])
    assert equal(session(one[0], lengths=one[1]), general(session, one[0], None, one[1]))


@pytest.mark.parametrize(("kind", "precision"), CASES)
def test_prepared_calls_with_resets_and_all_states_have_the_bits_of_the_general_path(kind, precision):
    layer = made(kind, dtype=torch.float64 if precision == "float64" else torch.float32)
    session, form = gg.freeze(layer, precision), (4, 6) if layer.batch_first else (6, 4)
    x, resets = noise(1, *form, layer.input_size).to(layer.weight_ih_l0), noise(3, *form) > 0.3
    hx, restart = (layer(noise(seed, *x.shape).to(x))[1] for seed in (2, 4))
    for states in (None, hx):
        for options in ((None, None, True), (resets, None), (resets, restart), (resets, restart, True)):
            for _ in range(2):
                assert equal(session_results(session, x, states, *options), general(session, x, states, None, *options))
    assert is_prepared(session)


def session_results(session, x, hx, resets, restart, return_states=False):
    return session(x, hx, resets=resets, restart=restart, return_states=return_states)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_prepared_calls_of_layers_in_half_precision_have_the_bits_of_the_general_path(dtype):
    layer = gg.LSTM(5, 6, num_layers=2, bidirectional=True, dtype=dtype).eval()
    session, x, resets = gg.freeze(layer), noise(1, 6, 4, 5).to(dtype), noise(3, 6, 4) > 0.3
    hx, restart = (tuple(noise(seed + k, 4, 4, 6).to(dtype) for k in range(2)) for seed in (2, 4))
    for options in ((), (hx,), (None, [3, 6, 0, 2]), (hx, None, resets, restart, True)):
        names = dict(zip(("hx", "lengths", "resets", "restart", "return_states"), options, strict=False))
        for _ in range(2):
            results = flat(session(x, **names))
            assert equal(session(x, **names), general(session, x, **names))
        assert {v.dtype for v in results.values()} == {dtype}
    assert None not in session.module._prepared.values()


@pytest.mark.parametrize(("kind", "precision"), [case for case in CASES if case[0] not in ("gru", "mean")])
def test_packed_sequences_have_the_bits_of_the_general_path(kind, precision):
    layer = made(kind, dtype=torch.float64 if precision == "float64" else torch.float32)
    session = gg.freeze(layer, precision)
    hx = layer(noise(2, 6, 4, layer.input_size).to(layer.weight_ih_l0))[1]
    hx = tuple(v.detach() for v in hx) if isinstance(hx, tuple) else hx.detach()
    for lengths in ([2, 6, 5, 1], [5, 4, 4, 1], [3, 3, 3, 3], [9, 1, 1, 1]):
        x = noise(3, max(lengths), 4, layer.input_size).to(layer.weight_ih_l0)
        packed = pack_padded_sequence(x, lengths, enforce_sorted=lengths == sorted(lengths, reverse=True))
        for states in (None, hx):
            output, final = session(packed, states)
            expected, expected_final = general(session, packed, states)
            assert isinstance(output, PackedSequence)
            assert torch.equal(output.data, expected.data)
            assert torch.equal(output.batch_sizes, expected.batch_sizes)
            assert equal(final, expected_final)
    assert is_prepared(session)


def test_large_batches_that_several_threads_divide_are_prepared():
    layer = gg.LSTM(40, 64, 2, bidirectional=True).eval()
    session, x = gg.freeze(layer), torch.randn(70, 80, 40)
    lengths = [(7 * n) % 71 for n in range(80)]
    assert equal(session(x, lengths=lengths), general(session, x, None, lengths))
    assert is_prepared(session)


def test_prepared_calls_report_the_errors_of_the_general_path():
    session, x = gg.freeze(made("lstm")), torch.randn(6, 4, 5)
    packed = pack_padded_sequence(x, [6, 5, 2, 1])
    short = packed._replace(batch_sizes=torch.ones(2, dtype=torch.int64))
    session(x, lengths=[6, 0, 3, 1])
    session(packed)
    for error, message, call in (
        (gg.ShapeError, r"lengths must be between 0 and L = 6", lambda: session(x, lengths=[7, 0, 3, 1])),
        (gg.ShapeError, r"lengths must be between 0 and L = 6", lambda: session(x, lengths=[-1, 0, 3, 1])),
        (gg.ShapeError, r"lengths must be \(N,\) = \(4,\), got \(3,\)", lambda: session(x, lengths=[1, 2, 3])),
        (TypeError, r"lengths must be integers", lambda: session(x, lengths=[1.0, 2.0, 3.0, 4.0])),
        (gg.ShapeError, r"input must have H_in = .* = 5", lambda: session(x[..., :4], lengths=[6, 0, 3, 1])),
        (gg.ShapeError, r"h_0 must be", lambda: session(x, (x[:4], x[:4]), lengths=[6, 0, 3, 1])),
        (gg.ShapeError, r"must have the layer's dtype", lambda: session(x.double(), lengths=[6, 0, 3, 1])),
        (ValueError, r"lengths must be left out with a PackedSequence", lambda: session(packed, lengths=[6, 5, 2, 1])),
        (gg.ShapeError, r"must add up to its 14 rows", lambda: session(short)),
    ):
        for _ in range(2):
            with pytest.raises(error, match=message):
                call()
    with pytest.raises(RuntimeError, match=r"a session cannot be traced, compiled or transformed"):
        torch.func.vmap(lambda v: session(v, lengths=[6, 0, 3, 1]))(x[None])


def test_prepared_calls_of_an_input_that_needs_a_gradient_build_no_graph():
    session, x = gg.freeze(made("residual")), torch.randn(6, 4, 5, requires_grad=True)
    for lengths in (None, [6, 0, 3, 1]):
        assert not any(v.requires_grad for v in (*session(x, lengths=lengths),))


ARRAYS = {
    "two layers, two directions": lambda: gg.Recurrent(gg.cells.MLSTM(2, 4), 16, 8, num_layers=2, bidirectional=True),
    "inputs": lambda: gg.Recurrent(gg.cells.GRUD(), 6, 5, batch_first=True),
    "recurrent products": lambda: gg.Recurrent(gg.cells.HyperLSTM(), 5, 8),
}


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", ARRAYS)
def test_sessions_of_cells_that_declare_axes_have_the_bits_of_the_general_path(name, precision):
    layer = ARRAYS[name]().eval()
    session, D = gg.freeze(layer, precision), layer.input_size
    x = noise(1, *((4, 6) if layer.batch_first else (6, 4)), D).float().requires_grad_()
    with torch.no_grad():
        hx = layer(noise(2, *x.shape).float())[1]
    rows = noise(3, 6, 4, D).float()
    packed = [pack_padded_sequence(rows, n, enforce_sorted=False) for n in ([2, 6, 5, 1], [3, 3, 4, 1])]
    for states in (None, hx):
        for lengths in (None, *LENGTHS.values()):
            for _ in range(2):
                results = session(x, states, lengths=lengths)
                assert equal(results, general(session, x, states, lengths))
                assert not any(v.requires_grad for v in (results[0], *results[1]))
        for input in packed:
            for _ in range(2):
                (output, final), (expected, expected_final) = session(input, states), general(session, input, states)
                assert torch.equal(output.data, expected.data)
                assert equal(final, expected_final)
    assert is_prepared(session)
    unbatched = x[0, :, :] if layer.batch_first else x[:, 0]
    assert equal(session(unbatched), general(session, unbatched))
