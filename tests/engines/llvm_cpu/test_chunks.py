"""Chunks: the results do not depend on the number of steps for which the input GEMM is computed at a time."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import glassgate as gg
from glassgate.engines.llvm_cpu import forward
from tests.compare import noise


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def results(layer, autocast):
    """Return the results and gradients of training calls and the outputs of calls without gradients.

    Calls have a packed batch of three sequences, or a batch with resets.
    """
    x = noise(1, 9, 4, 5).float().requires_grad_()
    packed = pack_padded_sequence(x[:, :3], torch.tensor([4, 9, 1]), enforce_sorted=False)
    resets = noise(2, 9, 4) > 1
    with gg.engine("cpu"), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        trained = [layer(packed)[0].data, *layer(x, resets=resets)[1]]
        with torch.no_grad():
            values = [*trained, layer(packed)[0].data, layer(x, resets=resets)[0]]
    return [*values, *torch.autograd.grad(sum(v.float().sin().sum() for v in trained), [x, *layer.parameters()])]


@pytest.mark.parametrize("autocast", [False, True])
def test_results_do_not_depend_on_the_size_of_chunks(one_thread, monkeypatch, autocast):
    layer, by_chunk = gg.LSTM(5, 6, bidirectional=True), []
    for rows in (10**6, 1, 5):
        forward.cached_forward_plan.cache_clear()
        monkeypatch.setattr(forward.ForwardPlan, "max_chunk_rows", lambda own, weights, rows=rows: rows)
        by_chunk.append(results(layer, autocast))
    forward.cached_forward_plan.cache_clear()
    for other in by_chunk[1:]:
        assert all(torch.equal(a, b) for a, b in zip(by_chunk[0], other, strict=True))
