"""With lengths and resets, each sequence has the same result as in a batch of one. Padding is zero."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import glassgate as gg
from tests.cases import STATES
from tests.compare import check, measure, noise

KINDS = pytest.mark.parametrize("kind", STATES)


def build(kind, **options):
    layer = getattr(gg, kind)(3, 4, dtype=torch.float64, **options)
    for k, weight in enumerate(layer.parameters()):
        weight.data = noise(k, *weight.shape) / 2
    return layer


def start(kind, layer, rows, seed=50):
    lead = layer.num_layers * layer.num_directions
    return {f"{s}_0": noise(seed + k, lead, rows, 4) for k, s in enumerate(STATES[kind])}


def as_hx(states):
    values = tuple(states)
    return values if len(values) > 1 else values[0]


def as_tuple(final):
    return final if isinstance(final, tuple) else (final,)


@KINDS
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5), batch_first=st.booleans(), layers=st.integers(1, 2))
def test_each_row_equals_a_separate_call(kind, lengths, batch_first, layers):
    layer = build(kind, num_layers=layers, bidirectional=True, batch_first=batch_first)
    L, N = 6, len(lengths)
    leaves = {"input": noise(9, N, L, 3), **start(kind, layer, N)}
    leaves = {name: v.requires_grad_() for name, v in leaves.items()}
    initial = list(leaves.values())[1:]
    batch = leaves["input"] if batch_first else leaves["input"].transpose(0, 1)
    everything = leaves | dict(layer.named_parameters())

    output, final = layer(batch, as_hx(initial), lengths=torch.tensor(lengths))
    output = output if batch_first else output.transpose(0, 1)
    got = {"output": output} | {f"final{k}": v for k, v in enumerate(as_tuple(final))}

    rows = []
    for n, length in enumerate(lengths):
        own = [v[:, n] for v in initial]
        if length == 0:
            rows.append((torch.zeros(L, 8, dtype=torch.float64), own))
            continue
        out, end = layer(leaves["input"][n, :length], as_hx(own))
        rows.append((torch.cat([out, out.new_zeros(L - length, 8)]), as_tuple(end)))
    truth = {"output": torch.stack([out for out, _ in rows])}
    truth |= {f"final{k}": torch.stack([end[k] for _, end in rows], 1) for k in range(len(initial))}

    if not any(lengths):
        assert not output.any()
        assert all(torch.equal(a, b) for a, b in zip(as_tuple(final), initial, strict=True))
        return
    check(measure(got, everything), measure(truth, everything))


@KINDS
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    bidirectional=st.booleans(),
    elsewhere=st.booleans(),
)
def test_resets_start_from_the_initial_state(kind, lengths, seed, bidirectional, elsewhere):
    layer = build(kind, bidirectional=bidirectional)
    L, N = max(lengths), len(lengths)
    leaves = {"input": noise(9, L, N, 3), **start(kind, layer, N)}
    others = {f"{name} anew": v for name, v in start(kind, layer, N, 70).items()} if elsewhere else {}
    initial, anew = list(leaves.values())[1:], list(others.values())
    leaves |= others
    for leaf in leaves.values():
        leaf.requires_grad_()
    resets = noise(seed, L, N) > 0.3
    everything = leaves | dict(layer.named_parameters())

    restart = as_hx(anew) if elsewhere else None
    output, final = layer(leaves["input"], as_hx(initial), lengths=lengths, resets=resets, restart=restart)
    got = {"output": output} | {f"final{k}": v for k, v in enumerate(as_tuple(final))}

    outputs, finals = [], [[] for _ in initial]
    for n, length in enumerate(lengths):
        whole, ends = [], []
        for direction in range(layer.num_directions):
            starts = [[v[direction, n] for v in states] for states in (initial, anew or initial)]
            out, end = in_pieces(layer, kind, direction, leaves["input"][:length, n], *starts, resets[:, n])
            whole.append(torch.cat([out, out.new_zeros(L - length, 4)]))
            ends.append(end)
        outputs.append(torch.cat(whole, -1))
        for k, of_state in enumerate(finals):
            of_state.append(torch.stack([end[k] for end in ends]))
    truth = {"output": torch.stack(outputs, 1)} | {f"final{k}": torch.stack(v, 1) for k, v in enumerate(finals)}
    check(measure(got, everything), measure(truth, everything))


def in_pieces(layer, kind, direction, x, initial, anew, resets):
    """Compute one sequence in one direction, in one call for each segment between resets."""
    suffix = "_l0" + "_reverse" * direction
    weights = [getattr(layer, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    cut = resets[: len(x)].flip(0) if direction else resets[: len(x)]
    x = x.flip(0) if direction else x
    edges = sorted({0, len(x), *cut.nonzero().flatten().tolist()})
    function = getattr(gg.functional, kind.lower())
    starts = [anew if cut[a] else initial for a in edges[:-1]]
    pieces = [function(x[a:b], as_hx(hx), *weights) for hx, (a, b) in zip(starts, pairwise(edges), strict=True)]
    out = torch.cat([piece for piece, _ in pieces])
    return out.flip(0) if direction else out, as_tuple(pieces[-1][1])


def test_an_unbatched_sequence_has_one_length():
    layer, x = gg.GRU(3, 4, dtype=torch.float64), noise(1, 5, 3)
    output, final = layer(x, lengths=2)
    assert torch.equal(output[:2], layer(x[:2])[0])
    assert torch.equal(final, layer(x[:2])[1])


@KINDS
@pytest.mark.parametrize("lengths", [[2, 5, 3], [5]], ids=["three rows", "one row"])
def test_lengths_give_the_results_of_packed_sequences(kind, lengths):
    layer = build(kind, num_layers=2, bidirectional=True)
    x, lengths = noise(1, 5, len(lengths), 3), torch.tensor(lengths)
    packed, packed_final = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
    output, final = layer(x, lengths=lengths)
    check({"output": output.detach()}, {"output": pad_packed_sequence(packed)[0].detach()})
    for a, b in zip(as_tuple(final), as_tuple(packed_final), strict=True):
        assert torch.equal(a, b)


@KINDS
def test_resets_of_a_packed_batch_are_packed(kind):
    layer = build(kind, bidirectional=True)
    x, lengths, resets = noise(1, 5, 3, 3), torch.tensor([2, 5, 3]), noise(2, 5, 3) > 0
    expected, _ = layer(x, lengths=lengths, resets=resets)
    for mask in (
        pack_padded_sequence(resets, lengths, enforce_sorted=False),
        pack_padded_sequence(resets, lengths, enforce_sorted=False).data,
    ):
        output, _ = layer(pack_padded_sequence(x, lengths, enforce_sorted=False), resets=mask)
        assert torch.equal(pad_packed_sequence(output)[0], expected)


@KINDS
@pytest.mark.parametrize("form", [list, tuple, torch.tensor, lambda v: torch.tensor(v, dtype=torch.uint8)])
def test_lengths_have_several_forms(kind, form):
    layer, x = build(kind), noise(1, 5, 3, 3)
    assert torch.equal(layer(x, lengths=form([5, 0, 2]))[0], layer(x, lengths=torch.tensor([5, 0, 2]))[0])


@pytest.mark.parametrize("form", [torch.Tensor.bool, torch.Tensor.float, torch.Tensor.int])
@pytest.mark.parametrize("batch_first", [False, True])
def test_resets_have_several_forms(form, batch_first):
    layer, x = build("GRU", batch_first=batch_first), noise(1, 5, 5, 3)
    resets = noise(2, 5, 5) > 0
    expected, _ = build("GRU")(x.transpose(0, 1) if batch_first else x, resets=resets.T if batch_first else resets)
    output, _ = layer(x, resets=form(resets))
    assert torch.equal(output.transpose(0, 1) if batch_first else output, expected)


def test_unbatched_input_with_lengths_and_resets():
    layer, x = build("LSTM"), noise(1, 5, 3)
    output, (h_n, c_n) = layer(x, lengths=[3], resets=torch.tensor([0, 0, 1, 1, 1]))
    expected, (h, c) = layer(x[2:3])
    assert not output[3:].any()
    got = {"output": output[2:3].detach(), "h_n": h_n.detach(), "c_n": c_n.detach()}
    check(got, {"output": expected.detach(), "h_n": h.detach(), "c_n": c.detach()})


def test_a_long_sequence_does_not_change_the_result_of_a_short_one():
    layer, x = build("LSTM", bidirectional=True), noise(1, 6, 2, 3)
    output, _ = layer(x, lengths=[3, 6])
    x[3:, 0] = float("nan")
    again, _ = layer(x, lengths=[3, 6])
    assert torch.equal(output, again)
