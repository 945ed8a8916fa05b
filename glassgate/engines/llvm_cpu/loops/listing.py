"""The program of a step as text for readers: the loads, operations and stores of each phase, and the barriers."""

from collections.abc import Iterator

from glassgate.engines.llvm_cpu.loops.buffers import Place, Rows
from glassgate.engines.llvm_cpu.loops.program import (
    Before,
    Carry,
    Compute,
    Constant,
    KeptRowSum,
    Load,
    Multiply,
    Phase,
    Program,
    RowSum,
    Size,
    Store,
    Sums,
    Term,
)
from glassgate.engines.symbolic.graph import Node


def listing(program: Program) -> str:
    """One line for each instruction."""
    return "\n".join(_Listing(program).lines()) + "\n"


class _Listing:
    def __init__(self, program: Program) -> None:
        self.program = program
        self._names: dict[Node, str] = {}

    def lines(self) -> Iterator[str]:
        yield f"{'backward' if self.program.backward else 'forward'} step"
        for number, phases in enumerate(self.program.passes):
            for k, phase in enumerate(phases):
                how = "row by row with the phase before" if k else f"pass {number}"
                yield f"  phase over {phase.axis}, {how}"
                yield from (f"    {line}" for line in self._phase(phase))

    def _phase(self, phase: Phase) -> Iterator[str]:
        for product in phase.products:
            yield f"multiply {self._multiply(product)}"
        for value in phase.values:
            yield f"{self._load(value) if isinstance(value, Load) else self._compute(value)}"
        for write in phase.writes:
            yield self._write(write)
        for store in phase.keeps:
            yield f"in training, {self._write(store)}"
        for term in phase.sums:
            kept = f", kept in {self._place(term.kept)}" if term.kept else ""
            yield f"add up {self._name(term.value)} over units: row sum {term.number}{kept}"
        if phase.barrier:
            yield "barrier: all units of the stored values are available"

    def _multiply(self, multiply: Multiply) -> str:
        product, left = multiply.product, multiply.left
        weight = "weight_hr" if product.op.startswith("hr") else f"weight_hh of {', '.join(product.gates)}"
        transposed = ", transposed" if product.op.endswith("_t") else ""
        heads = f", {multiply.heads} heads" if multiply.heads > 1 else ""
        rows = self._term(left.rows)
        if left.columns > 1:
            rows += f" and the {left.columns - 1} after it"
        return f"{multiply.number}: {weight}{transposed}{heads}, by {rows}"

    def _load(self, load: Load) -> str:
        return f"{self._name(load.value)} = {' + '.join(map(self._term, load.terms))}"

    def _compute(self, compute: Compute) -> str:
        node = compute.value
        arguments = ", ".join(self._name(a) if isinstance(a, Node) else str(a) for a in node.args)
        return f"{self._name(node)} = {node.op}({arguments})"

    def _write(self, write: Store | Carry) -> str:
        value = self._name(write.value)
        if isinstance(write, Carry):
            reset = f"where there was a reset, add it to {self._place(write.reset)}"
            return f"carry {value} to {self._place(write.to)}; {reset}"
        return f"{'add' if write.added else 'store'} {value} to {self._place(write.to)}"

    def _term(self, term: Term) -> str:
        match term:
            case Before(state):
                return f"{state} before the step"
            case Sums(product, column):
                return f"product {product}[{column}]"
            case RowSum(number):
                return f"row sum {number}"
            case KeptRowSum(place):
                return self._place(place)
            case Size(axis):
                return f"how many units {axis} has"
            case Constant(value):
                return str(value)
        return self._place(term)

    def _place(self, place: Place) -> str:
        buffer, column = place
        temporary = self.program.temporaries.get(buffer)
        label = self._name(temporary.node) if temporary else buffer.label
        of = {Rows.STEP: "each step's ", Rows.SEQUENCE: "each sequence's ", Rows.WHOLE: ""}[buffer.kind.rows]
        return f"{of}{label}[{column}]" if buffer.columns > 1 else f"{of}{label}"

    def _name(self, node: Node) -> str:
        return self._names.setdefault(node, node.name or f"v{len(self._names)}")
