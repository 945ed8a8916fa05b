"""`gg.check`: tests whether a cell is correct and accurate in float32, and reports whether the CPU engine runs it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.cell import Cell, Weights
from glassgate.cell_shapes import example_sizes
from glassgate.declarations import first_other_shape, refused_projection, shared_names, unread_weights
from glassgate.engines.choose import choose, engine
from glassgate.engines.reference_step import advance
from glassgate.engines.symbolic.ops import RowSum
from glassgate.engines.symbolic.step import equations_of
from glassgate.layers.arguments import arrange_call, directions_of_call
from glassgate.layers.stack import Recurrent
from glassgate.shapes import ShapeError

STEPS, ROWS, INPUTS, UNITS = 5, 3, 4, 6
"""The sizes of the tested layer: L, N, H_in, and the number of units per head."""
ROUNDING = torch.finfo(torch.float32).eps / 2
"""The largest relative rounding error of float32."""
MAX_ERROR_RATIO = 10
"""A step is inaccurate if its error exceeds the error from rounding its inputs by more than this factor. The factor of
every built-in cell is at most 2.
"""
SHIFTS_AND_SCALES = (
    *((bias, 1.0) for bias in (0, 10, 100, 1000, -10, -100, -1000)),
    *((0, scale) for scale in (1e-3, 1e-2, 1e2, 1e3)),
)
"""For each test in float32: the bias that is added to all gates, and the scale of the input."""
EXTREMES = torch.tensor(
    [sign * x for x in (0, 1e-30, 0.5, 3, 20, 90, 800, 1e9, 1e30, 1e200) for sign in (1, -1)], dtype=torch.float64
)
"""Pre-activations and states for which the engines are also compared."""
COMPARED_RANGE = 1e-30, 1e30
"""States whose largest value is outside this range are near the limits of float32. They are not compared."""


@dataclass
class Finding:
    """The result of one check.

    Attributes:
        claim: the statement that was checked, for example "gradients equal finite differences".
        holds: whether the claim is true.
        explanation: the cause and the remedy if the claim is false.
        warning: whether the cell is correct even if the claim is false.
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
    """The findings of `check`. `bool(report)` is true if the cell is correct; warnings do not change this."""

    cell: Cell
    findings: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return all(finding.holds or finding.warning for finding in self.findings)

    @property
    def warnings(self) -> list[Finding]:
        """The false claims that do not make the cell incorrect."""
        return [finding for finding in self.findings if finding.warning and not finding.holds]

    def __str__(self) -> str:
        return "\n".join([repr(self.cell), *(f"  {finding}" for finding in self.findings)])


def check(cell: Cell, seed: int = 0) -> Report:
    """Check a cell on small random sequences.

    The checks run in this order and stop at the first failure:

    1. `step` returns states of the right shapes and does not change its arguments.
    2. The rows of a batch are independent.
    3. Large inputs give finite outputs.
    4. Gradients equal finite differences.
    5. The step is accurate in float32 on shifted and scaled inputs. If it is not, the report has a warning. A step that
       computes a variance as `E[v^2] - E[v]^2` is inaccurate, for example.
    6. The declarations of the cell fit its step: the step reads all weights and parameters, no two values share a name,
       and a layer runs with `proj_size` if it can be created with it. If not, the report has warnings.
    7. The CPU engine gives the results of the reference engine.

    Args:
        cell: the cell.
        seed: the seed of the random sequences.

    Returns:
        the report. Print it to read the findings. `bool(report)` is true if the cell is correct.

    Raises:
        TypeError: `cell` is not a cell.

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
        for check_of_cell in (
            _check_shapes,
            _check_rows,
            _check_large_inputs,
            _check_gradients,
            _check_float32,
            _check_declarations,
            _check_engines,
        ):
            report.findings += check_of_cell(cell)
            if not report:
                break
    return report


def _layer(cell: Cell) -> tuple[Recurrent, Tensor]:
    """Return a small bidirectional layer of the cell in eval mode, which has no noise, and an input for it."""
    inputs, units = example_sizes(cell, INPUTS, UNITS)
    layer = Recurrent(cell, inputs, units, bidirectional=True, dtype=torch.float64)
    return layer.eval(), torch.randn(STEPS, ROWS, inputs, dtype=torch.float64)


def _as_hx(states: Sequence[Tensor]) -> Any:
    return tuple(states) if len(states) > 1 else states[0]


def _check_shapes(cell: Cell) -> list[Finding]:
    claim = f"step takes its gates {cell.gates} and states {cell.state}, and returns the new states"
    try:
        layer, x = _layer(cell)
        with engine("reference"):
            _, _, states = layer(x, return_states=True)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        may_be_a_shape = isinstance(error, RuntimeError | ShapeError)
        cause = first_other_shape(cell) if may_be_a_shape else ""
        return [Finding(claim, False, cause or f"it raised {type(error).__name__}: {error}")]
    forms = layer.glassgate.parts[0].forms
    expected = {name: (STEPS, ROWS, *form.shape) for name, form in forms.items()}
    shapes = {name.rpartition(".")[2]: tuple(v.shape) for name, v in states.items()}
    wrong = [
        f"{name} has {shape} instead of {expected[name]}" for name, shape in shapes.items() if shape != expected[name]
    ]
    if wrong:
        return [Finding(claim, False, f"every state must keep its shape, but {', '.join(wrong)}")]
    initial = [torch.randn(2, ROWS, *form.shape, dtype=x.dtype) for form in forms.values()]
    copies = [state.clone() for state in initial]
    with engine("reference"), torch.no_grad():
        layer(x, _as_hx(initial))
    changed = [name for name, a, b in zip(cell.state, copies, initial, strict=True) if not torch.equal(a, b)]
    explanation = f"it changes {', '.join(f's.{name}' for name in changed)} in place; compute a new tensor instead"
    return [Finding(claim, not changed, explanation)]


def _check_rows(cell: Cell) -> list[Finding]:
    layer, x = _layer(cell)
    with engine("reference"), torch.no_grad():
        separate = torch.cat([layer(x[:, n : n + 1])[0] for n in range(ROWS)], 1)
        holds = torch.allclose(layer(x)[0], separate, atol=1e-9)
    explanation = (
        "the result of a sequence depends on the other sequences of the batch; reduce only over the last dimension"
    )
    return [Finding("the rows of a batch are independent", holds, explanation)]


def _check_gradients(cell: Cell) -> list[Finding]:
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


def _check_large_inputs(cell: Cell) -> list[Finding]:
    layer, x = _layer(cell)
    with engine("reference"), torch.no_grad():
        finite = bool(layer(100 * x)[0].isfinite().all())
    explanation = (
        "this cell returns nan or infinity for pre-activations of several hundred; subtract a running maximum before "
        "exp, or clamp"
    )
    return [Finding("large inputs give finite outputs", finite, explanation)]


def _check_float32(cell: Cell) -> list[Finding]:
    """Compare the error in float32 with the unavoidable error from rounding the inputs of each step.

    Cells with noise are not checked, because `_states` does not pass noise to the step.
    """
    claim = "float32 is accurate on shifted and scaled inputs"
    if cell.noise:
        return []
    ratios = []
    for bias, scale in SHIFTS_AND_SCALES:
        input_size, hidden_size = example_sizes(cell, INPUTS, UNITS)
        layer = Recurrent(cell, input_size, hidden_size)
        weights = {name.removesuffix("_l0"): v.detach() for name, v in layer.named_parameters()}
        weights["bias_ih"] = weights["bias_ih"] + bias
        widths = layer.glassgate.parts[0].widths.values()
        x, drawn = torch.randn(STEPS, 2 * ROWS, input_size) * scale, torch.randn(2 * ROWS, max(widths)) / 2
        initial = [drawn[:, :width] for width in widths]
        in_float64 = {name: v.double() for name, v in weights.items()}, x.double(), [v.double() for v in initial]
        true_states = _states(cell, *in_float64)
        perturbed_states = [_states(cell, *in_float64, _perturb) for _ in range(5)]
        try:
            float32_states = _states(cell, weights, x, initial)
        except RuntimeError as error:
            return [Finding("runs in float32", False, f"it raised {type(error).__name__}: {error}")]
        by_state = zip(cell.state, true_states, float32_states, *perturbed_states, strict=True)
        for name, true_state, float32_state, *perturbed in by_state:
            largest = float(true_state.abs().max())
            if COMPARED_RANGE[0] < largest < COMPARED_RANGE[1]:
                float32_error = _median_row_error(float32_state - true_state)
                unavoidable = max(_median_row_error(state - true_state) for state in perturbed) + ROUNDING * largest
                inputs = f"biases of {bias}" if bias else f"inputs of about {scale:g}"
                relative = f"{float32_error / largest:.0e} of its largest value"
                ratios.append(
                    (float32_error / unavoidable, f"with {inputs}, state {name!r} has an error of {relative}")
                )
    ratio, worst_case = max(ratios, default=(0.0, ""))
    remedy = (
        "subtract the mean before you square, and prefer expm1, log1p, softplus and logsigmoid to a difference or a "
        "logarithm of nearly equal numbers"
    )
    explanation = f"{worst_case}, {ratio:.0f} times the error from rounding its inputs; {remedy}"
    return [Finding(claim, ratio <= MAX_ERROR_RATIO, explanation, warning=True)]


def _states(
    cell: Cell,
    weights: Weights,
    x: Tensor,
    initial: Sequence[Tensor],
    perturb: Callable[[Tensor], Tensor] = lambda v: v,
) -> list[Tensor]:
    """Return every state after every step, (N, L * width) each.

    Args:
        cell, weights, x: the cell, its parameters, and the input (L, N, H_in).
        initial: the initial states, (N, width).
        perturb: applied to each tensor that a step reads.
    """
    states, history = tuple(initial), []
    for x_t in x:
        w = {name: perturb(v) for name, v in weights.items()}
        x_read = perturb(x_t)
        ih = perturb(linear(x_read[:, : w["weight_ih"].shape[1]], w["weight_ih"], w["bias_ih"]))
        states = advance(cell, w, ih, tuple(map(perturb, states)), x=x_read)
        history.append(states)
    return [torch.cat(steps, 1) for steps in zip(*history, strict=True)]


def _perturb(v: Tensor) -> Tensor:
    """Move each number up or down at random by the largest rounding error of float32."""
    return v * (1 + ROUNDING * (2 * torch.randint(2, v.shape, dtype=v.dtype) - 1))


def _median_row_error(error: Tensor) -> float:
    """Return the median over rows of the largest error in a row.

    In a few rows, rounding may change the result of a comparison in the step. These rows do not affect the median.
    """
    return float(error.abs().amax(1).nan_to_num(torch.inf).median())


def _check_declarations(cell: Cell) -> list[Finding]:
    faults = {
        "step reads all weights and parameters": unread_weights(cell),
        "no two values share a name": shared_names(cell),
        "a layer with proj_size runs if it can be created": refused_projection(cell),
    }
    return [Finding(claim, not fault, fault, warning=True) for claim, fault in faults.items()]


def _check_engines(cell: Cell) -> list[Finding]:
    """Compare the CPU engine with the reference: outputs and gradients, and outputs for extreme numbers."""
    layer, x = _layer(cell)
    resets = torch.rand(STEPS, ROWS) < 0.3
    lengths = torch.tensor([STEPS, 1, STEPS - 1])
    steps, _, initial, _ = arrange_call(layer, x, lengths=lengths, resets=resets)
    choice = choose(steps, directions_of_call(layer, initial))
    reason = choice.reasons.get("cpu", "the CPU engine does not run on this device")
    if reason is not None:
        reason = reason.removesuffix("; it runs on the reference engine")
        return [Finding(f"runs only on the reference engine: {reason}", True)]

    def run(engine_name: str) -> list[Tensor]:
        with engine(engine_name):
            output, hx = layer(x, lengths=lengths, resets=resets)
        loss = (output * coefficients).sum() + sum((h * h).sum() for h in (hx if isinstance(hx, tuple) else (hx,)))
        parameters = list(layer.parameters())
        if not loss.requires_grad:  # the step reads no value with a gradient
            return [output.detach(), *map(torch.zeros_like, parameters)]
        return [output.detach(), *torch.autograd.grad(loss, parameters, materialize_grads=True)]

    coefficients = torch.randn(STEPS, ROWS, layer.output_size, dtype=torch.float64)
    pairs = zip(run("cpu"), run("reference"), strict=True)
    difference = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)
    # The rounding error of a sum decides whether the step of extreme numbers is infinite or NaN.
    sums = cell.declaration is not None or any(isinstance(node.op, RowSum) for node in equations_of(cell).nodes)
    equal_at_extremes = sums or _engines_agree_at_extremes(cell)
    where = "for very large or small numbers" if difference < 1e-8 else f"by {difference:.1e} of the largest value"
    explanation = f"they differ {where}; this is a bug in glassgate, please report the cell"
    holds = difference < 1e-8 and equal_at_extremes
    return [Finding("outputs and gradients of the cpu engine equal the reference's", holds, explanation)]


def _engines_agree_at_extremes(cell: Cell) -> bool:
    """Whether the CPU engine and the reference return equal states for numbers from `EXTREMES`.

    The weights are zero, so that the biases are the pre-activations, and no engine rounds them.
    """
    layer, x = _layer(cell)
    rows = 8 * ROWS

    def draw(*shape: int) -> Tensor:
        return EXTREMES[torch.randint(len(EXTREMES), shape)]

    initial = [draw(2, rows, *form.shape) for form in layer.glassgate.parts[0].forms.values()]
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("weight_"):
                parameter.zero_()
            elif name.startswith("bias_ih"):
                parameter.copy_(draw(*parameter.shape))
            elif name.startswith("bias_hh"):
                parameter.zero_()
        states = []
        for engine_name in ("cpu", "reference"):
            with engine(engine_name):
                _, hx = layer(x.new_zeros(1, rows, x.shape[2]), _as_hx(initial))
            states.append(torch.cat(hx) if isinstance(hx, tuple) else hx)
    return torch.allclose(states[0], states[1], rtol=1e-6, atol=1e-9, equal_nan=True)
