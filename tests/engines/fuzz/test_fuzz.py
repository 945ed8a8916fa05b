"""The kernels of generated cells compute the same values and gradients as the step, in every form of a call."""

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
from tests.engines.fuzz.array_writing import array_cells
from tests.engines.fuzz.interpreted import interpreted
from tests.engines.fuzz.writing import Written, cells

EXACT = 1e-9
"""The maximum error, as a fraction of the largest value of a result, or of one if that is larger."""
LARGE = 1e5
"""Cells with larger numbers are not compared, because their digits are not meaningful."""


class Trial:
    """A layer with a generated cell, and the input of its calls."""

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

    def call(self, engine: str, record: bool = False, compiled: bool = False) -> Results:
        """Run a training call.

        Args:
            engine: the name of the engine.
            record: whether the call is recorded. Then the results include the recorded values and their gradients.
            compiled: whether `torch.compile` compiles the layer.

        Returns:
            The outputs, the states and all gradients.
        """
        layer = torch.compile(self.layer, fullgraph=True, backend="aot_eager") if compiled else self.layer
        written, leaves = self.written, {"input": self.x.clone().requires_grad_()}
        resets = noise(written.seed + 1, written.L, written.N) > 0.5 if written.resets else None
        leaves |= dict(self.layer.named_parameters())
        with gg.engine(engine), gg.record(self.layer) if record else nullcontext({}) as tape:
            output, final, states = layer(leaves["input"], lengths=written.lengths, resets=resets, return_states=True)
            outputs = {"output": output, **states, **{f"final {k}": v for k, v in enumerate(flat(final))}}
            d_outputs = [noise(7 + k, *v.shape) for k, v in enumerate(outputs.values())]
            total = sum((v * d).sum() for v, d in zip(outputs.values(), d_outputs, strict=True))
            total = total + 0.0 * leaves["input"].sum()  # a cell may read neither its inputs nor its states
            d = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
        shown = {name: v.detach() for name, v in outputs.items()}
        shown |= {f"grad {name}": v for name, v in zip(leaves, d, strict=True)}
        if record:
            shown |= {f"tape {name}": v for name, v in tape.items()}
            shown |= {f"tape grad {name}": v for name, v in tape.grad.items()}
        return shown

    def stream(self, engine: str) -> Results:
        """Return the outputs of a stream, which runs one step at a time."""
        with gg.engine(engine):
            stream = self.layer.stream(self.written.N)
            return {"stream": torch.stack([stream.step(x).clone() for x in self.x])}

    def expected_stream(self) -> Results:
        """Return the outputs of the reference, which a stream must equal."""
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
    """Check calls, recordings and streams of a generated cell on kernels against the reference."""
    trial = Trial(written)
    truth = trial.call("reference", record=True)
    agree(trial.call("cpu"), {name: v for name, v in truth.items() if not name.startswith("tape ")})
    agree(trial.call("cpu", record=True), truth)
    if not trial.layer.bidirectional:
        agree(trial.stream("cpu"), trial.expected_stream())


def examples(few: int, many: int) -> settings:
    """Return settings with `few` examples in the test suite, and `many` examples in `make fuzz`."""
    fuzz = settings.default.max_examples > 1000
    phases = [Phase.generate, *([Phase.shrink] if fuzz else [])]
    return settings(max_examples=many if fuzz else few, phases=phases, suppress_health_check=list(HealthCheck))


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")  # a warning of torch if a step has no rows
@examples(40, 10_000)
@given(cells(), sampled_from(sorted(EVERY)))
def test_printed_kernels_equal_the_step(written, costs):
    """Python runs the text of the kernels, which takes less time than the compilation."""
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
        agree(trial.call("cpu", compiled=True), trial.call("reference"))


def try_arrays(written: Written) -> None:
    """Check calls and streams of a generated cell that declares axes on kernels against the reference."""
    trial, results = Trial(written), []
    for engine in ("reference", "cpu"):
        torch.manual_seed(written.seed)  # of zoneout
        results.append(trial.call(engine))
    agree(results[1], results[0])
    if not trial.layer.bidirectional and "zoneout" not in written.options:
        agree(trial.stream("auto"), trial.expected_stream())


@examples(30, 10_000)
@given(array_cells())
def test_printed_kernels_of_arrays_equal_the_step(written):
    with interpreted():
        try_arrays(written)


@pytest.mark.matrix
@examples(5, 200)
@given(array_cells())
def test_compiled_kernels_of_arrays_equal_the_step(written):
    try_arrays(written)


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
