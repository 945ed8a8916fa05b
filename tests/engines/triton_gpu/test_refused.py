"""If a GPU cannot start a kernel, the next best one runs. A warning and `gg.explain` show the reason."""

import warnings

import pytest
import torch
from triton.runtime.errors import OutOfResources

import glassgate as gg
from glassgate.engines.triton_gpu import launch, select
from tests.simulated_gpu import simulated_gpu, to_cpu, to_gpu


class Names(list):
    """Names of kernels, and a function from a name to the error that Triton raises for it, or None."""

    error = staticmethod(lambda name: None)


@pytest.fixture
def started(monkeypatch):
    """The names of the kernels that start. Kernel C is estimated to be slow, so that A or B is the first choice."""
    names, function, steps = Names(), launch.triton_function, select.estimate_steps

    class Function:
        def __init__(self, module, interpreted):
            self.name, self.function = module[-1].name, function(module, interpreted)

        def __getitem__(self, grid):
            if (error := names.error(self.name)) is not None:
                raise error
            names.append(self.name)
            return self.function[grid]

    monkeypatch.setattr(launch, "triton_function", Function)
    monkeypatch.setattr(select, "estimate_steps", lambda *arguments: steps(*arguments)._replace(microseconds=1e6))
    monkeypatch.setattr(select, "_refused", {})
    monkeypatch.setattr(select, "_warned", set())
    return names


def train(layer, x):
    """Run a training call. Return its output and all gradients."""
    layer.zero_grad()
    output = layer(x)[0]
    output.square().sum().backward()
    return [to_cpu(v) for v in (output, *(v.grad for v in layer.parameters()))]


def too_large(name):
    return OutOfResources(262_144, 101_376, "shared memory") if name.endswith(("_solo", "_grid", "_both")) else None


def too_many(name):
    return RuntimeError("Triton Error [CUDA]: too many blocks in cooperative launch") if "_grid" in name else None


@pytest.mark.parametrize(("error", "letters"), [(too_large, "AB"), (too_many, "B")])
def test_the_next_best_kernel_runs(error, letters, started, monkeypatch):
    torch.manual_seed(0)
    layer, x = gg.LSTM(3, 6), torch.randn(4, 2, 3)
    with gg.engine("reference"):
        expected = train(layer, x)
    if letters == "B":
        monkeypatch.setattr(select, "estimate_solo", lambda *_: None)
    with simulated_gpu(monkeypatch):
        layer, x = layer._apply(to_gpu), to_gpu(x)
        assert "kernel C" not in str(gg.explain(layer, x))
        started.error = error
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            results = [train(layer, x) for _ in range(2)]
        explained = str(gg.explain(layer, x))
    for result in results:
        torch.testing.assert_close(result, expected, atol=1e-6, rtol=1e-5)
    assert not {name for name in started if error(name)}
    assert len(messages) == len(letters)
    for letter, message in zip(letters, messages, strict=True):
        assert str(message.message).startswith(f"this GPU cannot run kernel {letter} for a layer ({error('_grid')}); ")
        assert f"; this GPU cannot run kernel {letter}: {error('_grid')}" in explained
    assert "kernel C (one launch per phase" in explained


def test_the_next_best_kernel_may_be_b(started, monkeypatch):
    started.error = lambda name: too_large(name) if name.endswith("_solo") else None
    with simulated_gpu(monkeypatch), torch.no_grad(), pytest.warns(UserWarning, match="cannot run kernel A"):
        gg.LSTM(3, 6)._apply(to_gpu)(to_gpu(torch.randn(4, 2, 3)))
    assert started == ["forward_grid"]


def test_other_errors_are_raised(started, monkeypatch):
    started.error = lambda name: RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")
    with simulated_gpu(monkeypatch), pytest.raises(RuntimeError, match="illegal memory access"):
        gg.LSTM(3, 6)._apply(to_gpu)(to_gpu(torch.randn(4, 2, 3)))
