"""Whatever cell an author writes, its kernels are its step: values and every gradient, in every form of a call."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis.strategies import sampled_from
from torch import Tensor

import glassgate as gg
from glassgate.engines.registry import BACKENDS
from tests.compare import Results, noise
from tests.engines.costs import EVERY
from tests.engines.fuzz.interpreted import interpreted
from tests.engines.fuzz.writing import Written, cells

EXACT = 1e-9
"""The maximum error, as a fraction of the largest value of a result, or of one if that is larger."""
LARGE = 1e5
"""Cells with larger numbers are not compared, because their digits are not meaningful."""


class Trial:
    """A written cell as a layer, called on one engine or another."""

    def __init__(self, written: Written) -> None:
        self.written = written
        torch.manual_seed(written.seed)
        # Initial states are parameters, so that gradients reach every state and none of them is zero.
        options = {**written.options, "learn_initial_state": True, "dtype": torch.float64}
        self.layer = gg.Recurrent(written.cell(), **options)
        with torch.no_grad():
            for k, weight in enumerate(self.layer.parameters()):
                weight.add_(noise(written.seed + k, *weight.shape) / 2)
        self.x = noise(written.seed, written.L, written.N, self.layer.input_size)

    def call(self, engine: str, record: bool, compiled: bool = False) -> Results:
        """Values and every gradient; with `record`, the recorded values; or of the layer under `torch.compile`."""
        layer = torch.compile(self.layer, fullgraph=True, backend="aot_eager") if compiled else self.layer
        written, leaves = self.written, {"input": self.x.clone().requires_grad_()}
        resets = noise(written.seed + 1, written.L, written.N) > 0.5 if written.resets else None
        leaves |= dict(self.layer.named_parameters())
        torch.manual_seed(written.seed)
        with gg.engine(engine), gg.record(self.layer) if record else nullcontext({}) as tape:
            output, final, states = layer(leaves["input"], lengths=written.lengths, resets=resets, return_states=True)
            outputs = {"output": output, **states, **{f"final {k}": v for k, v in enumerate(flat(final))}}
            d_outputs = [noise(7 + k, *v.shape) for k, v in enumerate(outputs.values())]
            total = sum((v * d).sum() for v, d in zip(outputs.values(), d_outputs, strict=True))
            total = total + 0.0 * leaves["input"].sum()  # a cell may ignore all that it is given
            d = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
        shown = {name: v.detach() for name, v in outputs.items()}
        shown |= {f"grad {name}": v for name, v in zip(leaves, d, strict=True)}
        if record:
            shown = {f"tape {name}": v for name, v in tape.items()}
            shown |= {f"tape grad {name}": v for name, v in tape.grad.items()}
        return shown

    def stream(self, engine: str) -> Results:
        """Step by step."""
        with gg.engine(engine):
            stream = self.layer.stream(self.written.N)
            return {"stream": torch.stack([stream.step(x).clone() for x in self.x])}

    def whole(self) -> Results:
        """What a stream must give."""
        with gg.engine("reference"), torch.no_grad():
            return {"stream": self.layer(self.x)[0]}


def flat(values) -> list[Tensor]:
    return [values] if isinstance(values, Tensor) else [v for value in values for v in flat(value)]


def agree(got: Results, truth: Results) -> None:
    assert got.keys() == truth.keys()
    assume(all(v.isfinite().all() and (v.abs() < LARGE).all() for v in truth.values()))
    faults = []
    for name, value in got.items():
        if value.numel():
            error, largest = (value - truth[name]).abs().max().item(), truth[name].abs().max().item()
            if not error <= EXACT * max(1.0, largest):
                faults.append(f"{name}: off by {error:.1e}, largest {largest:.1e}")
    assert not faults, "\n".join(faults)


def try_out(written: Written) -> None:
    """The cell on kernels, in each way, against the reference."""
    trial = Trial(written)
    agree(trial.call("cpu", False), trial.call("reference", False))
    agree(trial.call("cpu", True), trial.call("reference", True))
    if not trial.layer.bidirectional:
        agree(trial.stream("cpu"), trial.whole())


def examples(few: int, many: int) -> settings:
    """So many in the test suite, and as `make fuzz` runs it."""
    fuzz = settings.default.max_examples > 1000
    phases = [Phase.generate, *([Phase.shrink] if fuzz else [])]
    return settings(max_examples=many if fuzz else few, phases=phases, suppress_health_check=list(HealthCheck))


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")  # torch's, where a step has no rows
@examples(100, 10_000)
@given(cells(), sampled_from(sorted(EVERY)))
def test_printed_kernels_equal_the_step(written, costs):
    """The very text that is compiled, run by Python: hundreds of cells in the time that a compiler takes for ten."""
    with interpreted(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(BACKENDS["cpu"], "costs", EVERY[costs])
        try_out(written)


@pytest.mark.matrix
@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
@examples(5, 200)
@given(cells())
def test_compiled_kernels_equal_the_step(written):
    try_out(written)


@pytest.mark.matrix
@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
@examples(5, 200)
@given(cells())
def test_torch_compile_equals_the_step(written):
    torch._dynamo.reset()
    with interpreted():
        trial = Trial(written)
        agree(trial.call("cpu", False, compiled=True), trial.call("reference", False))


def test_the_interpreter_detects_errors():
    """A kernel that omits a term, or writes outside of its buffers, is detected."""

    class Leaky(gg.Cell):
        gates = ("f", "n")

        def step(self, a, s):
            f = torch.sigmoid(a.f)
            return f * s.h + (1 - f) * torch.tanh(a.n)

    x = noise(1, 4, 2, 3)
    for H, change in ((5, ("f * h_prev", "f * f")), (6, ("_store(_h_at", "_store(0"))):
        layer = gg.Recurrent(Leaky(), 3, H, dtype=torch.float64)
        with gg.engine("reference"):
            expected, _ = layer(x)
        with interpreted(change) as interpreter, gg.engine("cpu"):
            output, _ = layer(x)
            assert bool(interpreter.faults) == (H == 6)
            assert not torch.allclose(output, expected)
            interpreter.faults.clear()
