"""What a stage does with one vector of units, as lines of text: reads, equations, writes."""

from collections import Counter
from typing import TYPE_CHECKING

from glassgate.engines.numba_cpu.stages import PRODUCTS, Stage, place
from glassgate.engines.symbolic.graph import Key, Node

if TYPE_CHECKING:
    from glassgate.engines.numba_cpu.printer import Printer

INFIX = {
    "lt": ("<", 1),
    "le": ("<=", 1),
    "gt": (">", 1),
    "ge": (">=", 1),
    "eq": ("==", 1),
    "ne": ("!=", 1),
    "logical_or": ("|", 2),
    "logical_and": ("&", 3),
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
}
PREFIX = {"neg": "-", "logical_not": "~"}
CALLS = {"abs": "absolute", "round": "round_even", "pow": "power"}
ATOM, UNARY = 9, 6
LONGEST = 72


def broken(line: str) -> list[str]:
    """A long sum of loads with one of them a line."""
    if len(line) <= LONGEST or " + load(" not in line or " = " not in line:
        return [line]
    name, value = line.split(" = ", 1)
    first, *others = value.split(" + load(")
    return [f"{name} = (", f"    {first}", *(f"    + load({other}" for other in others), ")"]


class Body:
    """What a stage does with one vector of units: what holds for its row (addresses, numbers), and the work."""

    def __init__(self, printer: "Printer", stage: Stage) -> None:
        self.printer, self.stage = printer, stage
        self.addresses: list[str] = []
        self.reads: list[str] = []
        self.equations: list[str] = []
        self.writes: list[str] = []
        self.text: dict[Node, tuple[str, int]] = {}
        self.columns: dict[str, int] = {}
        """How many columns are read of the buffers that hold every step."""
        for product in stage.products:
            printer.products.append(product)
        needed = printer.stages.needed(stage)
        computed = [n for n in needed if printer.stages.computed(n, stage) and n.op not in PRODUCTS]
        self.uses = Counter(arg for node in computed for arg in node.inputs)
        self.spread = {arg for node in computed if node.axis != "1" for arg in node.inputs if arg.axis == "1"}
        for node in needed:
            self._print(node)
        self._stores()

    @property
    def work(self) -> list[str]:
        """All of it, in order."""
        parts = [part for part in (self.reads, self.equations, self.writes) if part]
        return [line for part in parts for line in ("", *part)][1:]

    def _at(self, name: str, address: str) -> str:
        line = f"{name}_at = {address}"
        if line not in self.addresses:
            self.addresses.append(line)
        return f"{name}_at"

    def _row(self, key: Key) -> str:
        """The address of a step's row in a buffer."""
        base, pitch = self.printer.buffer(key)
        row = f"{self.printer.states_starts(key)}[t]" if key[0] == "state" else "row"
        return self._at(base.removesuffix("_rows"), f"{base} + ({row} + one) * {pitch}")

    def _rank(self, name: str, pitch: str) -> str:
        """The address of a row of which there is one a sequence."""
        return self._at(f"{name}_rank", f"{self.printer.word(f'{name}_ranks')} + one * {self.printer.word(pitch)}")

    def _temporary(self, node: Node) -> str:
        """Where a temporary lies: address, place and lanes."""
        name = self.printer.temporaries[node]
        if node in self.printer.of_one_row:
            # Whole vectors: a processor hands on what it has just stored, unless a mask was in between.
            return f"{self.printer.word(f'{name}_ranks')}, unit, LANES"
        if node not in self.printer.kept:
            return f"{self._rank(name, f'{node.axis}_pitch')}, unit, live"
        (buffer, k), pitch = self.printer.kept[node], self.printer.word(f"{node.axis}_pitch")
        kept = self._row((buffer, k)) + (f" + {k} * {self.printer.word(node.axis)} * BYTES" if k else "")
        where = f"{kept} if {self.printer.word('save')} else {self.printer.word(f'{name}_ranks')} + one * {pitch}"
        return f"{self._at(f'{name}_rank', where)}, unit, live"

    def _column(self, k: int, axis: str) -> str:
        if k == 0:
            return "unit"
        width = self.printer.word(axis)
        return f"{width} + unit" if k == 1 else f"{k} * {width} + unit"

    def _load(self, address: str, k: int, axis: str) -> str:
        return f"load({address}, {self._column(k, axis)}, live)"

    def _read(self, node: Node) -> str:
        """The expression that reads a value from memory."""
        printer, trace = self.printer, self.printer.stages.trace
        match node.op:
            case "ih":
                return self._input_half(trace.ih.index(node.args[0], len(trace.shared)))
            case "saved" if node.args[0] == "row":
                return f"fill(number({self._row(('row', 0))} + {node.args[1]} * BYTES))"
            case "saved" if node.args[0] == "state":
                return self._load(self._row(node.args), 0, node.axis)
            case "saved":
                self._will_read(*node.args)
                return self._load(self._row(node.args), node.args[1], node.axis)
            case "state":
                name = node.args[0]
                return self._load(self._at(f"{name}_prev", f"{name}_prev_rows[one]"), 0, node.axis)
            case "grad":
                name = node.args[0]
                base, pitch = printer.word(f"d_{name}_rows"), printer.word(f"d_{name}_pitch")
                given = self._load(self._at(f"d_{name}", f"{base} + (row + one) * {pitch}"), 0, node.axis)
                return f"{given} + {self._load(self._rank(f'd_{name}_next', f'{node.axis}_pitch'), 0, node.axis)}"
            case "parameter":
                name, gate = node.args
                return self._load(printer.word(f"{name}_{gate}_values" if gate else f"{name}_values"), 0, node.axis)
            case "noise":
                name = node.args[0]
                base, pitch = printer.word(f"{name}_noise"), printer.word(f"{name}_noise_pitch")
                start = printer.word(f"{name}_noise_starts", "words")
                return self._load(self._at(f"{name}_noise", f"{base} + ({start}[t] + one) * {pitch}"), 0, node.axis)
            case "size":
                return printer.word(node.args[0])
            case "constant":
                return f"fill({node.args[0]!r})"
            case "row_sum":
                return f"fill(number({printer.word(f'total_{place(printer.row_sums, node)}')} + one * BYTES))"
        if node in printer.stages.homes:
            key = printer.stages.homes[node]
            return self._load(self._row(key), key[1] if key[0] != "state" else 0, node.axis)
        return f"load({self._temporary(node)})"

    def _will_read(self, buffer: str, column: int) -> None:
        if buffer in ("ih", "hh"):
            self.columns[buffer] = max(self.columns.get(buffer, 0), column + 1)

    def _input_half(self, column: int) -> str:
        self._will_read("ih", column)
        product = self._load(self._row(("ih", 0)), column, "H")
        return f"{product} + {self._load(self.printer.word('bias_ih'), column, 'H')}"

    def _product(self, node: Node) -> str:
        """The sums that belong to a node, with what the product starts from."""
        printer, trace = self.printer, self.printer.stages.trace
        terms = []
        for product in self.stage.products:
            if any(result is node for result in product.results):
                k = printer.products.index(product)
                column = place(product.results, node)
                at = "0" if column == 0 else "LANES" if column == 1 else f"{column} * LANES"
                terms.append(f"load(sums_at_{k}, {at}, LANES)")
        if node.op == "sum":
            terms.insert(0, self._input_half(place(trace.shared, node)))
        if node.op == "hh":
            terms.append(self._load(printer.word("bias_hh"), place(trace.hh_only, node), "H"))
        return " + ".join(terms)

    def _print(self, node: Node) -> None:
        stages = self.printer.stages
        if not stages.computed(node, self.stage) or node.op == "grad":
            text = self._read(node)
            if node.op == "size":
                self.text[node] = text, ATOM
            else:
                of_row = node.axis == "1"
                (self.addresses if of_row else self.reads).append(self._assign(node, text))
        elif node.op in PRODUCTS:
            self.reads.append(self._assign(node, self._product(node)))
        else:
            text, strength = self._expression(node)
            kept = node.name or self.uses[node] != 1 or len(text) > LONGEST or node in self.spread
            if kept:
                # What all units of a row share is computed once, before them.
                (self.addresses if node.axis == "1" else self.equations).append(self._assign(node, text))
            else:
                self.text[node] = text, strength

    def _assign(self, node: Node, text: str) -> str:
        name = self.printer.name(node)
        self.text[node] = name, ATOM
        return f"{name} = {text}"

    def _operand(self, arg: Node | float, strength: int) -> str:
        if not isinstance(arg, Node):
            return repr(float(arg)) if arg == arg and abs(arg) != float("inf") else f'float("{arg}")'
        text, own = self.text[arg]
        return text if own >= strength else f"({text})"

    def _expression(self, node: Node) -> tuple[str, int]:
        if node.op in INFIX:
            sign, strength = INFIX[node.op]
            a, b = node.args
            divides = isinstance(b, Node) and b.op == "div"
            tight = strength + (node.op in ("sub", "div") or strength == 1 or divides)
            return f"{self._operand(a, strength + (strength == 1))} {sign} {self._operand(b, tight)}", strength
        if node.op in PREFIX:
            return f"{PREFIX[node.op]}{self._operand(node.args[0], UNARY)}", UNARY
        args = [self._operand(arg, 0) for arg in node.args]
        if node.op == "where" and not any(isinstance(arg, Node) and arg.op != "size" for arg in node.args[1:]):
            args[1] = f"fill({args[1]})"
        return f"{CALLS.get(node.op, node.op)}({', '.join(args)})", ATOM

    def _value(self, node: Node) -> str:
        return self.text[node][0]

    def _stores(self) -> None:
        printer, states = self.printer, self.printer.states
        for key, node in self.stage.stores:
            buffer, k = key
            value = self._value(node)
            if buffer == "state":
                self.writes.append(f"store({self._row(key)}, unit, live, {value})")
            elif buffer == "d_state":
                self._carry(states[k], node.axis, value)
            elif buffer == "d_parameter":
                at, column = self._rank("d_parameter", "d_parameter_pitch"), self._column(k, "H")
                self.writes.append(f"store({at}, {column}, live, load({at}, {column}, live) + {value})")
            else:
                self.writes.append(f"store({self._row(key)}, {self._column(k, node.axis)}, live, {value})")
        for node in self.stage.temporaries:
            self.writes.append(f"store({self._temporary(node)}, {self._value(node)})")
        for node in self.stage.row_sums:
            k, term = place(printer.row_sums, node), f"keep({self._value(node.args[0])}, live)"
            if self.stage.products:
                at = self._at(f"sum_{k}", f"{printer.word(f'sum_{k}')} + one * LANES * BYTES")
                self.writes.append(f"store({at}, 0, LANES, load({at}, 0, LANES) + {term})")
            else:
                self.writes.append(f"sum_{k} = sum_{k} + {term}")
        keeps = [(key, node) for key, node in self.stage.keeps if node not in printer.kept]
        if keeps:
            self.writes.append(f"if {printer.word('save')}:")
            for (buffer, k), node in keeps:
                column = self._column(k, node.axis)
                self.writes.append(f"    store({self._row((buffer, k))}, {column}, live, {self._value(node)})")

    def _carry(self, state: str, axis: str, value: str) -> None:
        """The gradient of the state before: to the step before, or to the initial state where there was a reset."""
        following = self._rank(f"d_{state}_next", f"{axis}_pitch")
        initial = self._rank(f"d_{state}_0", f"{axis}_pitch")
        reset = f"reset = is_reset({self.printer.word('resets')}, row + one)"
        if reset not in self.addresses:
            self.addresses.append(reset)
        self.writes += [
            "if reset:",
            f"    store({initial}, unit, live, load({initial}, unit, live) + {value})",
            f"    store({following}, unit, live, fill(0.0))",
            "else:",
            f"    store({following}, unit, live, {value})",
        ]
