"""Calls whose batch size and length change every time share their passes."""

import pytest
import torch
from torch import nn

import glassgate as gg
from glassgate.engines.llvm_cpu.passes import cached_backward_pass, cached_forward_pass
from tests.cases import STOCK


@pytest.fixture(params=[1, 2])
def threads(request):
    previous = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(previous)


@pytest.mark.parametrize("kind", STOCK)
def test_new_batch_sizes_reuse_the_passes_and_give_the_results_of_torch(kind, threads):
    theirs, ours = getattr(nn, kind)(23, 64), getattr(gg, kind)(23, 64)
    ours.load_state_dict(theirs.state_dict())
    cached_forward_pass.cache_clear()
    cached_backward_pass.cache_clear()
    for N in (33, 41, 64):
        x = torch.randn(73 - N, N, 23)
        gradients = []
        for layer in (theirs, ours):
            output, states = layer(x)
            output.square().mean().backward()
            gradients.append([output, states, *[weight.grad for weight in layer.parameters()]])
            layer.zero_grad()
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            lengths = [1 + n % len(x) for n in range(N)]
            torch.testing.assert_close(ours(x, lengths=lengths)[0][0], output[0].detach(), rtol=1e-4, atol=1e-5)
    assert cached_forward_pass.cache_info().misses == 2, "training and inference"
    assert cached_backward_pass.cache_info().misses == 1
