"""A dialect of generated code: the step of a cell in scalar Python. It is the example of writing-a-backend.md.

It prints one loop over units per phase. Torch runs the lines before the loop over time, as on GPUs.
"""

import math
from collections.abc import Iterable, Iterator
from keyword import kwlist

import numpy as np
import torch

from glassgate.engines.axes import PER_ROW
from glassgate.engines.lowering.evaluate import Evaluator
from glassgate.engines.lowering.expressions import (
    ATOM,
    COMPARISON,
    CONDITION,
    PYTHON_LITERALS,
    SIGNS_AND_ARITHMETIC,
    SUM,
    Dialect,
    Expression,
    Form,
    call,
    infix,
)
from glassgate.engines.lowering.ir import Block, Elementwise, Line, Pass, Value
from glassgate.engines.lowering.mathematics import DECOMPOSED, function_lines
from glassgate.engines.lowering.step import Phase
from glassgate.engines.lowering.step_graph import GraphProgram, StepGraph
from glassgate.engines.symbolic.operations import ARITY, PRIMITIVES

NATIVE = {
    name: getattr(np, name) for name in ("exp", "log", "sin", "cos", "sqrt", "floor", "ceil", "abs", "tanh", "fmod")
}
NATIVE |= {"atan": np.arctan, "pow": np.power, "erf": math.erf}
"""The functions that the dialect has. The others are decomposed."""


PYTHON = Dialect(
    {
        **{op: call(op, ARITY[op]) for op in PRIMITIVES - {"detach"}},
        **SIGNS_AND_ARITHMETIC,
        **{op: infix(sign, COMPARISON, SUM) for op, sign in {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}.items()},
        "logical_and": Form("({} and {})", ATOM, (COMPARISON, COMPARISON)),
        "logical_or": Form("({} or {})", ATOM, (COMPARISON, COMPARISON)),
        "logical_not": Form("(not {})", ATOM, (COMPARISON,)),
        "where": Form("{1} if {0} else {2}", CONDITION, (SUM, SUM, SUM)),
    },
    PYTHON_LITERALS,
    {*kwlist, *PRIMITIVES, "u", "k", "range", "sum", "float", "step"},
)


def functions() -> str:
    """The decomposed functions."""
    texts = []
    for op in sorted(DECOMPOSED.keys() - NATIVE.keys()):
        lines = [
            f"{v} = {text}" if v else f"return {text}" for v, text, _ in function_lines(op, DECOMPOSED[op], PYTHON)
        ]
        texts.append("\n    ".join([f"def {op}({', '.join('xyz'[: ARITY[op]])}):", *lines]))
    return "\n\n\n".join(texts)


class ScalarStep(GraphProgram[Phase[Value]]):
    """The function that computes a step of one row.

    Args:
        program: a forward pass.

    Attributes:
        results: the values that the function returns, as lists.
        arguments: the values that it reads, in the order of its parameters.
        text: the function.
    """

    def __init__(self, program: Pass) -> None:
        graph, loop = StepGraph(program), program.loop
        self.states = {carry.before for carry in loop.carries}
        self.results = [*(carry.next for carry in loop.carries), *(write.value for write in loop.writes)]
        super().__init__(graph, map(graph.origin, self.results), Phase)
        self.divide([(self.key_of(value), value) for value in map(graph.origin, self.results)])
        self.names, self.variables, self.arguments = PYTHON.names(), dict[Value, str](), list[Value]()
        stored = {v for phase in self.phases.values() for v in (*phase.stored, *phase.published, *phase.results)}
        self.arrays = {value: self.names.new(f"all_{value.name}") for value in self.values if value in stored}
        body = [line for phase in self.phases.values() for line in self.loop_of(phase)]
        returned = ", ".join(self.arrays[graph.origin(value)] for value in self.results)
        widths = {axis.name for _, axis in self.phases}
        lines = [
            *(f"{array} = [0.0] * {self.axis_of(value).name}" for value, array in self.arrays.items()),
            *body,
            f"return {returned}",
        ]
        parameters = [*sorted(widths), *map(self.variables.__getitem__, self.arguments)]
        self.text = "\n    ".join([f"def step({', '.join(parameters)}):", *lines])

    def needs_all_units(self, value: Value, operand: Value) -> bool:
        """Whether a value needs all units of an operand. The states before the step are complete."""
        return super().needs_all_units(value, operand) and operand not in self.states

    def loop_of(self, phase: Phase[Value]) -> Iterator[str]:
        """The loop of a phase."""
        yield from (f"{self.variable(total)} = 0.0" for total in phase.sums)
        yield f"for u in range({phase.axis.name}):"
        for value in phase.values:
            if self.computes(phase, value):
                yield f"    {self.variable(value)} = {self.operation(phase, value)}"
            if value in self.arrays and self.key_of(value) == phase.key:
                yield f"    {self.arrays[value]}[u] = {self.read(phase, value).text}"
        for total in phase.sums:
            yield from (f"    {self.variable(total)} += {self.read(phase, x).text}" for x in self.operands(total))

    def operation(self, phase: Phase[Value], value: Value) -> str:
        """The expression that computes a value for unit u."""
        operation = self.graph.operations[value]
        if isinstance(operation, Elementwise):
            return PYTHON.apply(operation.op, [self.read(phase, arg) for arg in operation.args]).text
        contract = self.graph.product(value)
        assert contract is not None
        (left,), weight = self.graph.left_operands(contract), self.graph.weight(contract)
        vector = self.argument(left) if left in self.states else self.arrays[left]
        row, first = "[u]", ""
        matrix = self.argument(next(v for v, port in self.graph.ports.items() if port.name == weight.name))
        if weight.heads > 1:
            units = f"{phase.axis.name} // {weight.heads}"
            row = f"[u // ({units})][u % ({units})]"
            first = f"u // ({units}) * len({matrix}[0][0][0]) + "
        if weight.gates:
            assert isinstance(operation, Block)
            matrix += f"[{weight.gates[operation.at]}]"
        return f"sum(w * {vector}[{first}k] for k, w in enumerate({matrix}{row}))"

    def read(self, phase: Phase[Value], arg: Value | float) -> Expression:
        """The expression of a value for unit u."""
        if not isinstance(arg, Value):
            return PYTHON_LITERALS(arg)
        value = self.graph.origin(arg)
        number = self.graph.number(value)
        if number is not None:
            return PYTHON_LITERALS(number)
        if self.is_sum(value) or self.computes(phase, value):
            return Expression(self.variable(value))
        if not self.is_read(value):
            return Expression(f"{self.arrays[value]}[u]")
        operation, gate = self.graph.operations.get(value), ""
        if isinstance(operation, Block):
            value, gate = operation.x, f"[{operation.at}]"
        return Expression(self.argument(value) + gate + ("" if self.axis_of(value) == PER_ROW and not gate else "[u]"))

    def argument(self, value: Value) -> str:
        """The parameter that holds a value."""
        if value not in self.arguments:
            self.arguments.append(value)
        return self.variable(value)

    def variable(self, value: Value) -> str:
        """The variable that holds a value."""
        if value not in self.variables:
            self.variables[value] = self.names.new(value.name)
        return self.variables[value]


class ScalarPython(Evaluator):
    """Runs a forward pass. The printed function computes the steps, row by row, and torch everything else."""

    def __init__(self, program: Pass, sizes: dict[str, int]) -> None:
        super().__init__(program, sizes)
        self.step = ScalarStep(program)
        self.namespace = dict(NATIVE)
        exec(functions() + "\n\n\n" + self.step.text, self.namespace)

    def run_lines(self, lines: Iterable[Line]) -> None:
        """Compute lines outside of the loop, or one step."""
        if lines is not self.program.loop.body:
            super().run_lines(lines)
            return
        widths = [self.sizes[name] for name in sorted({axis.name for _, axis in self.step.phases})]
        rows = []
        for n in range(self.sizes["N"]):
            arguments = [self.values[v].select(v.type.axes.index("N"), n) if "N" in v.type.axes else self.values[v]
                         for v in self.step.arguments]  # fmt: skip
            with np.errstate(all="ignore"):
                rows.append(self.namespace["step"](*widths, *(v.numpy().tolist() for v in arguments)))
        for value, of_rows in zip(self.step.results, zip(*rows, strict=True), strict=True):
            self.values[value] = torch.tensor(of_rows, dtype=self.scalar.dtype).reshape(self.shape_of(value.type))
