"""Layouts convert every form of a batch to flat rows and back, and no value is lost or moved."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import glassgate as gg
from glassgate.layout import arrange

batches = st.integers(1, 6).flatmap(
    lambda L: st.tuples(st.just(L), st.lists(st.integers(0, L), min_size=1, max_size=5))
)


def numbered(L, N):
    """Return a batch in which each number encodes its step and row."""
    return torch.stack(torch.meshgrid(torch.arange(L), torch.arange(N), indexing="ij"), -1).float() + 1


@given(batches, st.booleans())
def test_flat_rows_equal_those_of_torch(batch, batch_first):
    L, lengths = batch
    x = numbered(L, len(lengths))
    steps, layout = arrange("test", x.transpose(0, 1) if batch_first else x, 2, batch_first, lengths)
    if min(lengths) == L:
        assert steps.batch_sizes is None
        assert torch.equal(steps.data, x.flatten(0, 1))
        return
    alive = sorted((n for n in lengths if n), reverse=True)
    sizes = [sum(n > t for n in alive) for t in range(L)]
    assert steps.batch_sizes.tolist() == sizes
    if alive:
        some = torch.tensor([k for k, n in enumerate(lengths) if n])
        packed = pack_padded_sequence(x[:, some], torch.tensor([n for n in lengths if n]), enforce_sorted=False)
        assert torch.equal(steps.data[: sum(sizes)], packed.data)
    assert sorted(map(tuple, steps.data.tolist())) == sorted(map(tuple, x.flatten(0, 1).tolist()))
    assert layout.order.tolist() == sorted(range(len(lengths)), key=lambda n: -lengths[n])


@given(batches, st.booleans())
def test_restore_is_the_inverse_of_arrange(batch, batch_first):
    L, lengths = batch
    x = numbered(L, len(lengths))
    x = x.transpose(0, 1) if batch_first else x
    steps, layout = arrange("test", x, 2, batch_first, lengths)
    assert torch.equal(layout.restore(steps.data), x)
    states = torch.arange(6.0 * len(lengths)).view(3, len(lengths), 2)
    assert torch.equal(layout.from_ranks(layout.to_ranks(states)), states)
    ranks = layout.to_ranks(states)[0, :, 0].tolist()
    assert ranks == [2.0 * n for n in sorted(range(len(lengths)), key=lambda n: -lengths[n])]


@given(batches, st.booleans())
def test_resets_are_reordered_like_steps(batch, packed):
    L, lengths = batch
    lengths = [max(n, 1) for n in lengths]
    lengths[0] = L
    x = numbered(L, len(lengths))
    mask = x[..., 0] > x[..., 1]
    if packed:
        lengths = torch.tensor(lengths)
        x, mask = (pack_padded_sequence(v, lengths, enforce_sorted=False) for v in (x, mask))
        steps, _ = arrange("test", x, 2, resets=mask)
    else:
        steps, _ = arrange("test", x, 2, lengths=lengths, resets=mask)
    assert torch.equal(steps.resets, steps.data[:, 0] > steps.data[:, 1])


def test_a_packed_sequence_is_passed_through():
    x, lengths = numbered(4, 3), torch.tensor([2, 4, 1])
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    steps, layout = arrange("test", packed, 2)
    assert steps.data is packed.data
    assert steps.batch_sizes is packed.batch_sizes
    back = layout.restore(steps.data * 2)
    assert torch.equal(pad_packed_sequence(back)[0], pad_packed_sequence(packed)[0] * 2)
    assert layout.to_ranks(lengths[None, :, None]).flatten().tolist() == [4, 2, 1]


def test_an_unbatched_sequence_is_a_batch_of_one():
    steps, layout = arrange("test", numbered(4, 1)[:, 0], 2, batch_first=True)
    assert (layout.rows, layout.length) == (1, 4)
    assert layout.restore(steps.data).shape == (4, 2)


def test_an_empty_batch_has_no_rows():
    steps, layout = arrange("test", torch.zeros(4, 0, 2), 2, lengths=torch.zeros(0, dtype=torch.long))
    assert steps.data.shape == (0, 2)
    assert layout.restore(steps.data).shape == (4, 0, 2)


@pytest.mark.parametrize("lengths", [None, [4, 2, 3]])
def test_gradients_return_to_their_positions(lengths):
    x = numbered(4, 3).requires_grad_()
    steps, layout = arrange("test", x, 2, lengths=lengths)
    layout.restore(steps.data * steps.data.detach()).sum().backward()
    assert torch.equal(x.grad, x.detach())


def test_compiled_calls_reject_lengths_outside_the_input():
    torch._dynamo.reset()
    layer, x = gg.LSTM(3, 4), torch.randn(5, 2, 3)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, lengths=torch.tensor([3, 5]))[0], layer(x, lengths=[3, 5])[0])
    for lengths in ([3, 6], [-1, 2]):
        with pytest.raises(RuntimeError, match="LSTM: lengths must be between 0 and L, the steps of the input"):
            compiled(x, lengths=torch.tensor(lengths))


def test_lengths_are_on_the_cpu_for_any_default_device():
    layer, x = gg.LSTM(3, 4), torch.randn(5, 2, 3)
    with gg.engine("reference"):
        expected, _ = layer(x, lengths=[2, 5])
        with torch.device("meta"):
            output, _ = layer(x, lengths=[2, 5])
    torch.testing.assert_close(output, expected)
    with pytest.raises(gg.ShapeError, match="lengths must have values, got a tensor on the device meta"):
        layer(x, lengths=torch.ones(2, dtype=torch.int64, device="meta"))
