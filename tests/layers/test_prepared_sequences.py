"""Prepared calls with lengths and with packed sequences equal the reference and reject invalid input."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import glassgate as gg
from tests.layers.test_prepared_calls import call, noise, prepared, same

RAGGED = {
    "one layer": lambda: gg.LSTM(6, 5),
    "batch first, float64": lambda: gg.GRU(6, 5, batch_first=True, dtype=torch.float64),
    "stacked": lambda: gg.LSTM(6, 5, 2, bidirectional=True),
}


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize("lengths", [[7, 0, 3, 9], torch.tensor([2, 9, 9, 9]), [4, 4, 4, 4], [9, 9, 9, 9]], ids=str)
def test_prepared_calls_with_lengths(name, lengths):
    layer = RAGGED[name]()
    x = noise(1, *((4, 9) if layer.batch_first else (9, 4)), 6).to(layer.weight_ih_l0).requires_grad_()
    hx = [noise(2 + k, len(layer.glassgate.parts), 4, 5).to(x).requires_grad_() for k in range(len(layer.cell.state))]
    for states in (None, tuple(hx) if len(hx) > 1 else hx[0]):
        for learns in (True, False):
            with gg.engine("reference"):
                expected = call(layer, x, states, learns, lengths=lengths)
            for _ in range(3):
                before = len(prepared(layer))
                for result, other in zip(call(layer, x, states, learns, lengths=lengths), expected, strict=True):
                    torch.testing.assert_close(result, other, rtol=1e-4, atol=1e-5)
            assert len(prepared(layer)) == before > 0
    with pytest.raises(gg.ShapeError, match="lengths must be between 0 and L = 9"):
        layer(x, lengths=[1, 2, 10, 3])


def test_second_derivatives_with_lengths():
    layer, x = gg.GRU(3, 4, dtype=torch.float64), noise(1, 4, 3, 3).double().requires_grad_()

    def second():
        output, h_n = layer(x, lengths=[4, 0, 2])
        (d,) = torch.autograd.grad((output.sin() * output).sum() + h_n.sin().sum(), x, create_graph=True)
        return torch.autograd.grad((d * d).sum(), [x, *layer.parameters()])

    with gg.engine("reference"):
        expected = second()
    for _ in range(3):
        results = second()
    assert prepared(layer)
    for ours, theirs in zip(results, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


PACKED = {
    "LSTM": lambda: gg.LSTM(6, 5),
    "float64": lambda: gg.GRU(6, 5, dtype=torch.float64),
    "projected": lambda: gg.LSTM(6, 20, proj_size=5),
    "stacked": lambda: gg.LSTM(6, 5, 2, bidirectional=True),
    "own parameters": lambda: gg.Recurrent(gg.cells.LayerNormLSTM(), 6, 5),
}


def packed_call(layer, x, hx, lengths, learns):
    packed = pack_padded_sequence(x, lengths, enforce_sorted=lengths == sorted(lengths, reverse=True))
    with torch.set_grad_enabled(learns):
        output, final = layer(packed, hx)
        assert torch.equal(output.batch_sizes, packed.batch_sizes)
        results = [output.data, *(final if isinstance(final, tuple) else (final,))]
        if learns:
            loss = sum((v.sin() * (k + 1)).sum() for k, v in enumerate(results))
            states = [] if hx is None else [*hx] if isinstance(hx, tuple) else [hx]
            results += torch.autograd.grad(loss, [v for v in (x, *states, *layer.parameters()) if v.requires_grad])
    return [v.detach().clone() for v in results]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("learns", [False, True])
def test_packed_sequences_are_prepared_for_any_number_of_steps(name, learns):
    layer = PACKED[name]()
    dtype, parts = layer.weight_ih_l0.dtype, len(layer.glassgate.parts)
    widths = [5, *[layer.hidden_size] * (len(layer.cell.state) - 1)]
    states = tuple([noise(2 + k, parts, 4, n).to(dtype).requires_grad_(learns) for k, n in enumerate(widths)])
    for hx in (None, states if len(states) > 1 else states[0]):
        for lengths in ([7, 7, 3, 1], [3, 7, 1, 6], [8, 8, 8, 8], [9, 2, 9, 5]):
            x = noise(1, max(lengths), 4, 6).to(dtype).requires_grad_(learns)
            layer.glassgate.prepared_calls.forget()
            expected = packed_call(layer, x, hx, lengths, learns)
            packed_call(layer, x, hx, lengths, learns)
            assert len(prepared(layer)) == 1
            for _ in range(2):
                same(packed_call(layer, x, hx, lengths, learns), expected)
            other = (
                noise(5, 5, 4, 6).to(dtype).requires_grad_(learns)
            )  # a batch with another number of steps has the same signature
            results = packed_call(layer, other, hx, [5, 5, 3, 2], learns)
            assert len(prepared(layer)) == 1
            with gg.engine("reference"):
                near(results, packed_call(layer, other, hx, [5, 5, 3, 2], learns))


def near(results, expected):
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_layers_with_prepared_calls_report_errors_in_packed_sequences():
    layer = gg.LSTM(6, 5)
    good = pack_padded_sequence(noise(1, 5, 3, 6), [5, 4, 2])
    with torch.no_grad():
        for _ in range(3):
            layer(good)
        assert len(prepared(layer)) == 1
        bad = PackedSequence(good.data, torch.tensor([3, 2, 3, 2, 1]), None, None)
        with pytest.raises(gg.ShapeError, match="batch_sizes of a PackedSequence must add up to its"):
            layer(bad)
        order, states = torch.tensor([0, 1, 9]), (noise(2, 1, 3, 5), noise(3, 1, 3, 5))
        with pytest.raises(IndexError, match="out of range"):
            layer(PackedSequence(good.data, good.batch_sizes, order, order), states)


def test_second_derivatives_of_packed_sequences():
    layer, x = gg.GRU(3, 4, dtype=torch.float64), noise(1, 6, 3, 3).double().requires_grad_()
    hx = noise(2, 1, 3, 4).double().requires_grad_()

    def second():
        output, final = layer(pack_padded_sequence(x, [2, 6, 4], enforce_sorted=False), hx)
        d = torch.autograd.grad(output.data.sin().sum() + final.cos().sum(), [x, hx], create_graph=True)
        return [*d, *torch.autograd.grad(sum(v.pow(2).sum() for v in d), [x, hx, *layer.parameters()])]

    with gg.engine("reference"):
        expected = second()
    for _ in range(3):
        for one, other in zip(second(), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert len(prepared(layer)) == 1
