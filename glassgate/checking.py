"""`gg.check` verifies a cell and reports which engines run it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.cell import Cell, Weights
from glassgate.engines.choose import choose, engine
from glassgate.engines.reference import advance
from glassgate.layers.calls import arrange_call, directions_by_layer
from glassgate.layers.stack import Recurrent

STEPS, ROWS, INPUTS, UNITS = 5, 3, 4, 6
ROUNDING = torch.finfo(torch.float32).eps / 2
"""The largest relative rounding error of float32."""
MAX_ERROR_RATIO = 10
"""A step loses accuracy if its error is more than this multiple of the error from rounding its inputs. No built-in cell
exceeds 2.
"""
SHIFTS_AND_SCALES = (
    *((bias, 1.0) for bias in (0, 10, 100, 1000, -10, -100, -1000)),
    *((0, scale) for scale in (1e-3, 1e-2, 1e2, 1e3)),
)
"""The bias added to all gates, and the scale of the input, of each test in float32."""
COMPARED_RANGE = 1e-30, 1e30
"""States outside this range are near the limits of float32 and are not compared."""


@dataclass
class Finding:
    """The result of one check.

    Attributes:
        claim: the statement about the cell that was checked, for example "gradients equal finite differences".
        holds: whether the claim is true.
        explanation: the cause and the remedy if it does not.
        warning: whether the cell is correct even if the claim does not hold.
    """

    claim: str
    holds: bool
    explanation: str = ""
    warning: bool = False

    def __str__(self) -> str:
        mark = "ok  " if self.holds else "WARN" if self.warning else "FAIL"
        return f"{mark} {self.claim}{'' if self.holds else f': {self.explanation}'}"


@dataclass
class Report:
    """The findings of `check`. `bool(report)` is true if all claims hold, except those that only cause a warning."""

    cell: Cell
    findings: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return all(finding.holds or finding.warning for finding in self.findings)

    @property
    def warnings(self) -> list[Finding]:
        """Possible improvements of a correct cell."""
        return [finding for finding in self.findings if finding.warning and not finding.holds]

    def __str__(self) -> str:
        return "\n".join([repr(self.cell), *(f"  {finding}" for finding in self.findings)])


def check(cell: Cell, seed: int = 0) -> Report:
    """Checks a cell on small random sequences in float64.

    The checks are, in this order: the shapes of the states, the independence of the rows of a batch, finite outputs for
    large inputs, gradients compared with finite differences, accuracy in float32, and the results of the CPU engine
    compared with those of the reference engine. The checks end at the first failure.

    If a step loses accuracy in float32 on shifted or scaled inputs, the report has a warning. An example is a variance
    computed from squares.

    Args:
        cell: the cell.
        seed: the seed of the random sequences.

    Returns:
        the report. Print it to read the findings; `bool(report)` is true if the cell is correct.

    Example:
        >>> import glassgate as gg
        >>> bool(gg.check(gg.cells.GRU()))
        True
    """
    if not isinstance(cell, Cell):
        remedy = "; check its cell, layer.cell" if isinstance(getattr(cell, "cell", None), Cell) else ""
        raise TypeError(f"check: cell must be an instance of glassgate.Cell, got {cell!r}{remedy}")
    report = Report(cell)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for verify in (_shapes, _rows_are_independent, _large_inputs, _gradients, _float32_accuracy, _engines):
            report.findings += verify(cell)
            if not report:
                break
    return report


def _layer(cell: Cell) -> tuple[Recurrent, Tensor]:
    """A small bidirectional layer of the cell in eval mode, so without noise, and an input for it."""
    layer = Recurrent(cell, INPUTS, UNITS * cell.heads, bidirectional=True, dtype=torch.float64)
    return layer.eval(), torch.randn(STEPS, ROWS, INPUTS, dtype=torch.float64)


def _shapes(cell: Cell) -> list[Finding]:
    claim = f"step takes its gates {cell.gates} and states {cell.state}, and returns the new states"
    try:
        layer, x = _layer(cell)
        with engine("reference"):
            _, _, states = layer(x, return_states=True)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        return [Finding(claim, False, f"it raised {type(error).__name__}: {error}")]
    expected = (STEPS, ROWS, UNITS * cell.heads)
    wrong = [f"{name} is {tuple(v.shape)}" for name, v in states.items() if tuple(v.shape) != expected]
    if wrong:
        return [Finding(claim, False, f"every state must have the shape {expected}, but {', '.join(wrong)}")]
    initial = tuple(torch.randn(2, ROWS, UNITS * cell.heads, dtype=x.dtype) for _ in cell.state)
    before = [state.clone() for state in initial]
    with engine("reference"), torch.no_grad():
        layer(x, initial if len(initial) > 1 else initial[0])
    changed = [name for name, a, b in zip(cell.state, before, initial, strict=True) if not torch.equal(a, b)]
    explanation = f"it changes {', '.join(f's.{name}' for name in changed)} in place; compute a new tensor instead"
    return [Finding(claim, not changed, explanation)]


def _rows_are_independent(cell: Cell) -> list[Finding]:
    layer, x = _layer(cell)
    with engine("reference"), torch.no_grad():
        separate = torch.cat([layer(x[:, n : n + 1])[0] for n in range(ROWS)], 1)
        holds = torch.allclose(layer(x)[0], separate, atol=1e-9)
    explanation = (
        "the result of a sequence depends on the other sequences of the batch; reduce only over the last dimension"
    )
    return [Finding("the rows of a batch are independent", holds, explanation)]


def _gradients(cell: Cell) -> list[Finding]:
    layer, x = _layer(cell)
    names, values = zip(*layer.named_parameters(), strict=True)
    inputs = (x.requires_grad_(), *(v.detach().requires_grad_() for v in values))

    def outputs(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))[0]

    claim = "gradients equal finite differences"
    try:
        with engine("reference"):
            torch.autograd.gradcheck(outputs, inputs, fast_mode=True)
    except RuntimeError as error:
        explanation = (
            "a function in step has a wrong derivative, is not differentiable at the tested point, or stops a gradient "
            "with detach: "
        )
        return [Finding(claim, False, explanation + str(error).strip().splitlines()[0])]
    return [Finding(claim, True)]


def _large_inputs(cell: Cell) -> list[Finding]:
    layer, x = _layer(cell)
    with engine("reference"), torch.no_grad():
        finite = bool(layer(100 * x)[0].isfinite().all())
    explanation = (
        "pre-activations of several hundred give nan or infinity; subtract a running maximum before exp, or clamp"
    )
    return [Finding("large inputs give finite outputs", finite, explanation)]


def _float32_accuracy(cell: Cell) -> list[Finding]:
    """Compares the error in float32 with the unavoidable error from rounding the inputs of each step.

    Cells that draw random numbers are not checked: `_states` would run them without their noise factors.
    """
    claim = "float32 is accurate on shifted and scaled inputs"
    if cell.noise:
        return []
    ratios = []
    for bias, scale in SHIFTS_AND_SCALES:
        layer = Recurrent(cell, INPUTS, UNITS * cell.heads)
        weights = {name.removesuffix("_l0"): v.detach() for name, v in layer.named_parameters()}
        weights["bias_ih"] = weights["bias_ih"] + bias
        x, initial = torch.randn(STEPS, 2 * ROWS, INPUTS) * scale, torch.randn(2 * ROWS, UNITS * cell.heads) / 2
        exact = {name: v.double() for name, v in weights.items()}, x.double(), initial.double()
        truth = _states(cell, *exact)
        rounded_inputs = [_states(cell, *exact, _perturbed) for _ in range(5)]
        try:
            computed = _states(cell, weights, x, initial)
        except RuntimeError as error:
            return [Finding("runs in float32", False, f"it raised {type(error).__name__}: {error}")]
        for name, true_state, in_float32, *perturbed in zip(cell.state, truth, computed, *rounded_inputs, strict=True):
            largest = float(true_state.abs().max())
            if COMPARED_RANGE[0] < largest < COMPARED_RANGE[1]:
                rounding_error = _error_of_median_row(in_float32 - true_state)
                unavoidable = max(_error_of_median_row(state - true_state) for state in perturbed) + ROUNDING * largest
                inputs = f"biases of {bias}" if bias else f"inputs of about {scale:g}"
                relative = f"{rounding_error / largest:.0e} of its largest value"
                ratios.append(
                    (rounding_error / unavoidable, f"with {inputs}, state {name!r} has an error of {relative}")
                )
    ratio, worst_case = max(ratios, default=(0.0, ""))
    remedy = (
        "subtract the mean before you square, and prefer expm1, log1p, softplus and logsigmoid to a difference or a "
        "logarithm of nearly equal numbers"
    )
    explanation = f"{worst_case}, {ratio:.0f} times the error from rounding its inputs; {remedy}"
    return [Finding(claim, ratio <= MAX_ERROR_RATIO, explanation, warning=True)]


def _states(
    cell: Cell, weights: Weights, x: Tensor, initial: Tensor, rounded: Callable[[Tensor], Tensor] = lambda v: v
) -> list[Tensor]:
    """Every state after every step, (N, L * H_cell) each.

    Args:
        initial: the initial value of every state, (N, H_cell).
        rounded: applied to each number that a step reads.
    """
    state, history = (initial,) * len(cell.state), []
    for x_t in x:
        w = {name: rounded(v) for name, v in weights.items()}
        ih = rounded(linear(rounded(x_t), w["weight_ih"], w["bias_ih"]))
        state = advance(cell, w, ih, tuple(map(rounded, state)))
        history.append(state)
    return [torch.cat(steps, 1) for steps in zip(*history, strict=True)]


def _perturbed(v: Tensor) -> Tensor:
    """Each number, moved up or down at random by the largest rounding error of float32."""
    return v * (1 + ROUNDING * (2 * torch.randint(2, v.shape, dtype=v.dtype) - 1))


def _error_of_median_row(error: Tensor) -> float:
    """The median over rows of the largest error. A few rows in which rounding flips a comparison do not change it."""
    return float(error.abs().amax(1).nan_to_num(torch.inf).median())


def _engines(cell: Cell) -> list[Finding]:
    """Compares outputs and gradients of the CPU engine with the reference, on unequal sequences with resets."""
    layer, x = _layer(cell)
    resets = torch.rand(STEPS, ROWS) < 0.3
    lengths = torch.tensor([STEPS, 1, STEPS - 1])
    steps, _, initial, _ = arrange_call(layer, x, lengths=lengths, resets=resets)
    choice = choose(steps, directions_by_layer(layer, initial)[0])
    reason = choice.reasons.get("cpu", "the CPU engine does not run on this device")
    if reason is not None:
        reason = reason.removesuffix("; it runs on the reference engine")
        return [Finding(f"runs only on the reference engine: {reason}", True)]

    def results(name: str) -> list[Tensor]:
        with engine(name):
            output, hx = layer(x, lengths=lengths, resets=resets)
        loss = (output * coefficients).sum() + sum((h * h).sum() for h in (hx if isinstance(hx, tuple) else (hx,)))
        parameters = list(layer.parameters())
        if not loss.requires_grad:  # the step reads no value with a gradient
            return [output.detach(), *map(torch.zeros_like, parameters)]
        return [output.detach(), *torch.autograd.grad(loss, parameters, materialize_grads=True)]

    coefficients = torch.randn(STEPS, ROWS, 2 * UNITS * cell.heads, dtype=torch.float64)
    pairs = zip(results("cpu"), results("reference"), strict=True)
    worst = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)
    explanation = f"they differ by {worst:.1e} of the largest value; this is a bug in glassgate, please report the cell"
    return [Finding("outputs and gradients of the cpu engine equal the reference's", worst < 1e-8, explanation)]
