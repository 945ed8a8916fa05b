"""Calls of layers do not make the CPU wait for the GPU. On the simulated GPU, operations that wait raise an error."""

from contextlib import contextmanager

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence

import glassgate as gg
from glassgate.engines.symbolic.evaluate import compute_elementwise
from glassgate.engines.triton_gpu import graphs, passes
from glassgate.engines.triton_gpu.launch import KernelChoice, Launch
from tests.simulated_gpu import GPU, OnGPU, Waits, simulated_gpu, to_cpu, to_gpu

LENGTHS, RESETS = torch.tensor([4, 0, 2]), torch.eye(4, 3).bool()
OPTIONS = {"num_layers": 2, "bidirectional": True}


def results(layer, x, to, **arguments):
    """Run a training call. Return its outputs and all gradients, on the CPU."""
    layer._apply(to)
    layer.zero_grad()
    x = to(x.detach()).requires_grad_()
    torch.manual_seed(0)
    output, final = layer(x, **arguments)
    final = final if isinstance(final, tuple) else (final,)
    sum(state.square().sum() for state in (output, *final)).backward()
    return [to_cpu(v) for v in (output, *final, x.grad, *(v.grad for v in layer.parameters()))]


def check(layer, x, monkeypatch, lengths=None, resets=None):
    """Compare a training call with the reference engine on the CPU."""
    with gg.engine("reference"):
        expected = results(layer, x, lambda v: v, lengths=lengths, resets=resets)
    with simulated_gpu(monkeypatch):
        on_gpu = results(layer, x, to_gpu, lengths=lengths, resets=None if resets is None else to_gpu(resets))
    for value, truth in zip(on_gpu, expected, strict=True):
        torch.testing.assert_close(value, truth, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("resets", [None, RESETS], ids=["", "resets"])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["", "lengths"])
def test_a_training_call_does_not_wait(lengths, resets, monkeypatch):
    torch.manual_seed(0)
    check(gg.GRU(3, 6, **OPTIONS), torch.randn(4, 3, 3), monkeypatch, lengths, resets)


def test_projection_noise_and_dropout_do_not_wait(monkeypatch):
    torch.manual_seed(0)
    noise = {"zoneout": 0.3, "recurrent_dropout": 0.2, "dropout": 0.5, "variational_dropout": True}
    layer = gg.LSTM(3, 6, proj_size=2, learn_initial_state=True, **OPTIONS, **noise)
    check(layer, torch.randn(4, 3, 3), monkeypatch, LENGTHS)


def test_graphs_do_not_wait(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(graphs, "MIN_STEPS", 1)
    monkeypatch.setattr(graphs, "_graphs", {})
    monkeypatch.setattr(graphs, "_steps", {})
    monkeypatch.setattr(passes, "select_kernel", lambda *_: KernelChoice("steps", 0.0))
    check(gg.LSTM(3, 6), torch.randn(4, 3, 3), monkeypatch, LENGTHS)
    assert len(graphs._graphs) == 2


def test_streams_and_edits_do_not_wait(monkeypatch):
    torch.manual_seed(0)
    layer, x = gg.LSTM(3, 6), torch.randn(4, 3, 3)
    mask = torch.tensor([False, True, False])
    with simulated_gpu(monkeypatch):
        x, mask = to_gpu(x), to_gpu(mask)
        layer._apply(to_gpu)
        stream = layer.stream(3)
        first = to_cpu(stream.step(x[0]))
        for rows in (None, mask, [0, -1]):
            stream.reset(rows)
        assert torch.equal(to_cpu(stream.step(x[0])), first)
        packed = PackedSequence(x.flatten(0, 1)[:5], torch.tensor([3, 2]))
        with gg.edit(layer, {"layer0.forward.f": gg.hold(0.5, steps=[0, 1], units=[2])}):
            layer(x, lengths=LENGTHS)
            layer(packed)


def test_launches_select_the_gpu_of_their_tensors(monkeypatch):
    second, selected_devices, used = torch.device("cuda", 1), [], []
    monkeypatch.setattr(graphs, "MIN_STEPS", 1)

    @contextmanager
    def select(device):
        selected_devices.append(device)
        yield
        selected_devices.pop()

    def make_start(launch, *callers):
        start = of_simulated_gpu(launch, *callers)
        return lambda arguments: used.append((launch.device, *selected_devices)) or start(arguments)

    with simulated_gpu(monkeypatch), monkeypatch.context() as patch:
        of_simulated_gpu = Launch.make_start
        patch.setattr(OnGPU, "device", second)
        patch.setattr(torch.cuda, "device", select)
        patch.setattr(Launch, "make_start", make_start)
        layer, x = gg.GRU(3, 6)._apply(to_gpu), to_gpu(torch.randn(4, 3, 3))
        layer(x)[0].sum().backward()
        layer.stream(3).step(x[0])
    assert {*used} == {(second, second)}


def test_constants_selected_by_a_mask_are_created_on_the_gpu(monkeypatch):
    with simulated_gpu(monkeypatch):
        chosen = compute_elementwise("where", (to_gpu(RESETS), 1.0, 0.1), torch.float32)
        smaller = compute_elementwise("minimum", (to_gpu(torch.ones(2)), 0.5), None)
    assert chosen.dtype == torch.float32
    assert to_cpu(chosen).tolist() == torch.where(RESETS, 1.0, 0.1).tolist()
    assert to_cpu(smaller).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("waits", "reason"),
    [
        (lambda v: v.sum().item(), "_local_scalar_dense"),
        (lambda v: bool(v.any()), "_local_scalar_dense"),
        (lambda v: v.tolist(), "from the GPU to the CPU"),
        (lambda v: v.cpu(), "from the GPU to the CPU"),
        (lambda v: v.nonzero(), "nonzero"),
        (lambda v: v[v > 0], "index with a mask"),
        (lambda v: v[torch.tensor([0])], "an index on the CPU"),
        (lambda v: torch.tensor([1.0]).to(v.device), "not pinned"),
        (lambda v: torch.where(v > 0, torch.tensor(1.0), torch.tensor(0.0)), "a number in a tensor on the CPU"),
        (lambda v: gg.LSTM(3, 4)._apply(to_gpu)(v, lengths=to_gpu(LENGTHS)), "from the GPU to the CPU"),
    ],
)
def test_the_simulated_gpu_finds_operations_that_wait(waits, reason, monkeypatch):
    with simulated_gpu(monkeypatch), pytest.raises(Waits, match=reason):
        waits(to_gpu(torch.ones(4, 3, 3)))


def test_amd_gpus_are_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    layer, x = gg.LSTM(3, 4), torch.ones(4, 3, 3)
    with simulated_gpu(monkeypatch), pytest.raises(gg.EngineError, match=r"not been tested on AMD GPUs \(ROCm\)"):
        layer._apply(to_gpu)(to_gpu(x))


def test_the_simulated_gpu_rejects_tensors_on_two_devices(monkeypatch):
    with simulated_gpu(monkeypatch), pytest.raises(RuntimeError, match="expected all tensors on the same device"):
        torch.zeros(2, device=GPU) + torch.ones(2)
