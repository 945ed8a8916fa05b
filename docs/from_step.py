"""`python docs/from_step.py` writes the blocks of from-step-to-machine-code.md, the translation of a cell in stages.

Run it after a change of the CPU engine. A test compares the page with the output of this script.
"""

import re
import sys
import textwrap
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType

import torch

import glassgate as gg
from glassgate.engines.contract import Direction
from glassgate.engines.llvm_cpu.backward import BackwardPlan, RequestedGradients
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.llvm_cpu.forward import ForwardPlan
from glassgate.engines.llvm_cpu.kernel import print_kernel
from glassgate.engines.llvm_cpu.loops.memory import StateBefore
from glassgate.engines.llvm_cpu.loops.outside_loop import WeightGradient, after_loop
from glassgate.engines.llvm_cpu.plan import KernelPlan
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Pass
from glassgate.engines.lowering.printer import format_pass
from glassgate.engines.plan import plan_of
from glassgate.engines.symbolic.trace import build_trace
from glassgate.engines.traced_cells import current_equations

PAGE = Path(__file__).with_name("from-step-to-machine-code.md")
L, N, D, H = 5, 3, 4, 8
"""The numbers of steps, sequences, inputs and units."""


class Leaky(gg.Cell):
    """The cell of the page."""

    gates = ("f", "n")

    def step(self, a, s):  # type: ignore[no-untyped-def]
        f = torch.sigmoid(a.f)
        n = torch.tanh(a.n)
        return f * s.h + (1 - f) * n


def blocks() -> dict[str, str]:
    """Return the text of each block by its name."""
    cell = Leaky()
    equations = current_equations(cell)
    traced, form = build_trace(equations, COSTS), Form(save=True)
    texts = {
        "sums": "\n".join(map(_describe_gradient, after_loop(equations, traced, True).weight_gradients)),
        "pass": _step(forward_pass(equations, traced, form)),
        "kernel": _innermost(print_kernel("Leaky", equations, traced, False).text),
    }
    direction = _direction(cell)
    plan = plan_of(direction, COSTS)
    sizes = KernelSizes(*plan.sizes([*direction.weights.values(), *direction.initial], torch.empty(L * N, D)))
    forward = ForwardPlan(
        plan, sizes, save=True, all_states=True, rounds_output=False, few_rows=False, processor=host()
    )
    requested = RequestedGradients(plan.weights, data=True, added=False)
    backward = BackwardPlan(plan, sizes, requested, few_rows=False, processor=host())
    texts["launches"] = f"forward\n{_launches(forward)}\n\nbackward\n{_launches(backward)}"
    texts["walk"] = _called_functions()
    return {name: text.strip("\n") for name, text in texts.items()}


def _direction(cell: gg.Cell) -> Direction:
    weights = {name: torch.zeros(shape) for name, shape in cell.shapes(D, H).items()}
    return Direction(cell, weights, (torch.zeros(N, H),), reverse=False)


def _describe_gradient(gradient: WeightGradient) -> str:
    d, right, names = gradient.d, gradient.right, ", ".join([gradient.weight, *gradient.biases])
    rows = f"{right.state} before each step" if isinstance(right, StateBefore) else right and right.kind.label
    return (
        f"{names}: {d.kind.label} of gates {gradient.gate} to {gradient.gate + gradient.gate_count - 1}, times {rows}"
    )


def _step(lowered: Pass) -> str:
    """Return the text of a pass without the lines before and after its step."""
    text = format_pass(lowered)
    return text[text.index("for each step") : text.index("after the loop")].rstrip()


def _innermost(kernel: str) -> str:
    """Return the part of a kernel that computes the equations for one vector of units."""
    start, end = (kernel.rindex("\n", 0, kernel.index(line)) for line in ("h_prev = ", "_tile_start += "))
    return textwrap.dedent(kernel[start + 1 : end])


def _launches(kernel: KernelPlan) -> str:
    """Return the tasks of a call in order, with one line for tasks that threads divide among themselves."""
    rounds = [
        [*kernel.tasks.packing, *kernel.tasks.before[0]],
        *kernel.tasks.before[1:],
        [kernel.loop],
        *kernel.tasks.after,
    ]
    return "\n".join(f"  {', '.join(task.launch.function.name for task in tasks)}" for tasks in rounds if tasks)


def _called_functions() -> str:
    """Return the functions that a repeated call runs on one thread, and their number."""
    layer, x = gg.LSTM(D, H), torch.zeros(L, N, D, requires_grad=True)

    def infer() -> None:
        with torch.no_grad():
            layer(x)

    def train() -> None:
        torch.autograd.backward(layer(x)[0], torch.zeros(L, N, H))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, the functions depend on the processors of the machine
    try:
        with gg.engine("cpu"):
            for _ in range(2):
                infer(), train()
            inference, training = _trace_calls(infer), _trace_calls(train)
    finally:
        torch.set_num_threads(threads)
    lines = [
        f"{file:34} {', '.join(name for _, name in calls)}"
        for file, calls in groupby(inference, key=lambda call: call[0])
    ]
    return "\n".join([*lines, "", f"{len(inference)} functions; in training, forward and backward, {len(training)}"])


def _trace_calls(work: Callable[[], None]) -> list[tuple[str, str]]:
    """Run a function. Returns the functions of the package that it calls, as pairs of file and name, in order."""
    root, calls = Path(gg.__file__).parent, []

    def record(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Comprehensions are functions in some versions of Python and not in others.
        if event == "call" and code.co_filename.startswith(str(root)) and not code.co_name.startswith("<"):
            calls.append((str(Path(code.co_filename).relative_to(root)), code.co_name))

    previous = sys.getprofile()
    sys.setprofile(record)
    try:
        work()
    finally:
        sys.setprofile(previous)
    return calls


def update(page: str) -> str:
    """Return the page with current blocks."""
    texts = blocks()
    return re.sub(
        r"(<!-- (\w+) -->\n```\w*\n).*?(\n```\n)",
        lambda match: match[1] + texts[match[2]] + match[3],
        page,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text("utf-8")), "utf-8")
