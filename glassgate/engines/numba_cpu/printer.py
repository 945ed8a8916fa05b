"""A cell's graph to the readable text of one kernel; what the text calls is in `language.py`."""

from collections import Counter
from dataclasses import dataclass, field

from glassgate.engines.graph import Key, Node
from glassgate.engines.numba_cpu.stages import PRODUCTS, Product, Stage, Stages, place

INFIX = {
    "logical_or": ("|", 1),
    "logical_and": ("&", 2),
    "lt": ("<", 3),
    "le": ("<=", 3),
    "gt": (">", 3),
    "ge": (">=", 3),
    "eq": ("==", 3),
    "ne": ("!=", 3),
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
}
PREFIX = {"neg": "-", "logical_not": "~"}
CALLS = {"abs": "absolute", "round": "round_even", "pow": "power"}
ATOM, UNARY = 9, 6
LONGEST = 72

RESERVED = frozenset(
    {"address", "before", "block", "fill", "flags", "here", "high", "is_reset", "job", "keep", "last_block", "live"}
    | {
        "load",
        "locate",
        "meet",
        "met",
        "near",
        "number",
        "one",
        "panel",
        "point",
        "put_total",
        "rank",
        "reset",
        "row",
        "rows",
    }
    | {"shape_of_tiles", "step", "store", "t", "unit", "wide", "words", "BYTES", "LANES"}
    | {*CALLS.values(), "H", "P", "int", "max", "min", "range", "float"}
)
"""Names that a kernel uses itself; an author's value of that name gets an underscore."""


@dataclass
class Kernel:
    """A printed kernel and what its caller must hand over.

    Attributes:
        text: the Python source of one function of one argument, the address of the words.
        words: names of the 64-bit integers behind that address, in order.
        products: the matrices to pack, by the number in `weights_0`, `weights_1`, ...
        temporaries: rows of scratch memory by name, each as wide as its axis says.
        row_sums: how many sums over a row there are.
        split_units: whether threads can share the units of a row.
    """

    text: str
    words: tuple[str, ...]
    products: tuple[Product, ...]
    temporaries: dict[str, str]
    row_sums: int
    split_units: bool


def print_kernel(stages: Stages, title: str, states: tuple[str, ...]) -> Kernel:
    """The text of the forward or the backward kernel."""
    return _Printer(stages, states).kernel(title)


@dataclass
class _Printer:
    stages: Stages
    states: tuple[str, ...]
    lines: list[tuple[int, str]] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    """Each word's name and how it is read from the job."""
    products: list[Product] = field(default_factory=list)
    names: dict[Node, str] = field(default_factory=dict)
    depth: int = 1

    def __post_init__(self) -> None:
        self.row_sums = [node for stage in self.stages for node in stage.row_sums]
        self.temporaries = {node: self.name(node) for stage in self.stages for node in stage.temporaries}

    def kernel(self, title: str) -> Kernel:
        """Print the loop over time, then what it needs at the top."""
        name = "backward" if self.stages.backward else "forward"
        for word in ("first", "last", "steps", "origin", "turn"):
            self.word(word)
        for word in ("sizes", "starts"):
            self.word(word, "words")
        shared = self._shared_stages()
        self.line("for step in range(steps):")
        self.depth += 1
        self._step()
        for number, stage in enumerate(self.stages):
            self._stage(number, stage)
            if stage in shared:
                self.line(f"met = meet({self.word('barrier')}, {self.word('parties')}, met)")
        head = [(0, f'"""{title}"""'), (0, ""), (0, f"def {name}(address):")]
        head += [(1, f"{word} = {how.format(k)}") for k, (word, how) in enumerate(self.words.items())]
        head.insert(3, (1, "job = words(address)"))
        if shared:
            head.append((1, "met = 1"))
        text = "\n".join("    " * depth + line for depth, line in [*head, *self.lines]) + "\n"
        return Kernel(
            text,
            tuple(self.words),
            tuple(self.products),
            {name: node.axis for node, name in self.temporaries.items()},
            len(self.row_sums),
            not self.row_sums,
        )

    def line(self, text: str, deeper: int = 0) -> None:
        """One line of the kernel."""
        self.lines.append((self.depth + deeper if text else 0, text))

    def word(self, name: str, how: str = "") -> str:
        """A number that the caller hands over."""
        self.words.setdefault(name, f"{how}(job[{{}}])" if how else "job[{}]")
        return name

    def name(self, node: Node) -> str:
        """The author's name for a value, or a number."""
        if node not in self.names:
            name = node.name or f"v{len(self.names)}"
            taken = set(self.names.values()) | RESERVED | self.words.keys()
            while name in taken:
                name += "_"
            self.names[node] = name
        return self.names[node]

    def _shared_stages(self) -> list[Stage]:
        """Stages after which threads that share the units of a row must meet."""
        lefts = {product.left for stage in self.stages for product in stage.products}
        shared = [
            stage
            for stage in self.stages
            if lefts & stage.temporaries.keys() or lefts & {node for key, node in stage.stores if key[0] != "d_state"}
        ]
        next_step_too = any(left.op == "state" or left not in self.stages.homes for left in lefts)
        if next_step_too and self.stages[-1] not in shared:
            shared.append(self.stages[-1])
        return shared

    def _step(self) -> None:
        """What holds for all rows of a step."""
        self.line("t = origin + step * turn")
        self.line("row, here = starts[t], min(last, sizes[t])")
        reads = {node.args[0] for node in self.stages.graph.nodes if node.op == "state"}
        if reads:
            self.line(f"before = t {'+' if self.stages.backward else '-'} turn")
        for name in self.states:
            if name in reads:
                self.line(
                    f"locate({self.word(f'{name}_prev_rows', 'words')}, first, here, row, {self.word('resets')}, "
                    f"{self.word(f'{name}_rows')}, {self.word(f'{name}_pitch')}, "
                    f"{self.word(f'{name}_starts', 'words')}[before], sizes[before], {self.word(f'{name}_0')})"
                )

    def _stage(self, number: int, stage: Stage) -> None:
        width, units = stage.axis, ("unit_0", "unit_1") if stage.axis == "H" else ("out_0", "out_1")
        for node in stage.row_sums:
            k = place(self.row_sums, node)
            self.line("for one in range(first, here):")
            self.line(f"store({self.word(f'sum_{k}')} + one * LANES * BYTES, 0, LANES, fill(0.0))", 1)
        body = _Body(self, stage)
        if not stage.products:
            self.line("for one in range(first, here):")
            self.depth += 1
            self._lines(body.addresses)
            self.line(f"for unit in range({self.word(units[0])}, {self.word(units[1])}, LANES):")
            self.line(f"live = {self.word(width)} - unit", 1)
            self.depth += 1
            self._lines(body.work)
            self.depth -= 2
        else:
            self._product_loops(stage, body, units)
        for node in stage.row_sums:
            self._end_of_sum(node)

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            self.line(line)

    def _product_loops(self, stage: Stage, body: "_Body", units: tuple[str, str]) -> None:
        heads = self.stages.heads > 1
        numbers = [self.products.index(product) for product in stage.products]
        for k in numbers:
            self._point(k)
        most = max(len(self._sums(product)) for product in stage.products)
        self.line(f"high, wide = shape_of_tiles(here - first, MOST_ROWS_{most}, {1 if heads else f'ROOM_{most}'})")
        if heads:
            self.line(f"block, last_block = {self.word('block_0')}, {self.word('block_1')}")
        else:
            first, last = (self.word(unit) for unit in units)
            self.line(f"block, last_block = {first} // LANES, ({last} + LANES - 1) // LANES")
        self.line("while block < last_block:")
        self.depth += 1
        self.line("while block + wide > last_block:")
        self.line("wide //= 2", 1)
        self.line("for rank in range(first, here, high):")
        self.depth += 1
        self.line("rows = min(high, here - rank)")
        for k in numbers:
            self._tile(k)
        self.line("for near in range(rows):")
        self.depth += 1
        self.line("one = rank + near")
        self._lines(body.addresses)
        self.line("for panel in range(wide):")
        self.depth += 1
        if heads:
            self.line(f"unit = block // {self.word('head_blocks')} * {self.word('head_size')}")
            self.line("unit += block % head_blocks * LANES")
            self.line("live = head_size - block % head_blocks * LANES")
        else:
            self.line("unit = (block + panel) * LANES")
            self.line(f"live = {self.word(stage.axis)} - unit")
        for k in numbers:
            size = f"{len(self._sums(self.products[k]))} * LANES * BYTES"
            self.line(f"sums_at_{k} = sums_{k} + (near * wide + panel) * {size}")
        self._lines(body.work)
        self.depth -= 3
        self.line("block += wide")
        self.depth -= 1

    def _sums(self, product: Product) -> tuple[Node, ...]:
        return product.results

    def _point(self, k: int) -> None:
        """Where the row vectors lie that a product multiplies."""
        left = self.products[k].left
        if left.op == "state":
            return
        rows = self.word(f"left_{k}", "words")
        if left in self.stages.homes:
            base, pitch = self._buffer(self.stages.homes[left])
            start = f"{self.states_starts(self.stages.homes[left])}[t]"
            self.line(f"point({rows}, first, here, {base} + {start} * {pitch}, {pitch})")
        else:
            name = self.temporaries[left]
            self.line(f"point({rows}, first, here, {self.word(f'{name}_ranks')}, {self.word(f'{left.axis}_pitch')})")

    def states_starts(self, key: Key) -> str:
        """The first row of each step, in a buffer of states or in any other."""
        return self.word(f"{self.states[key[1]]}_starts", "words") if key[0] == "state" else "starts"

    def _buffer(self, key: Key) -> tuple[str, str]:
        name = self.states[key[1]] if key[0] == "state" else key[0]
        return self.word(f"{name}_rows"), self.word(f"{name}_pitch")

    def _tile(self, k: int) -> None:
        product, heads = self.products[k], self.stages.heads > 1
        left = product.left
        rows = f"{left.args[0]}_prev_rows" if left.op == "state" else f"left_{k}"
        buffer, column = self.stages.homes.get(left, ("state", 0))
        column = 0 if buffer == "state" else column
        width, count = left.axis, len(product.gates) if product.op == "hh_t" else 1
        first = f"{column} * {self.word(width)}" if column else "0"
        depth = f"{count} * {self.word(width)}" if count > 1 else self.word(width)
        if heads and product.op.startswith("hh"):
            first = f"{first} + block // {self.word('head_blocks')} * {self.word('head_size')}"
            depth = "head_size"
        panel = f"{self.word(f'weights_{k}')} + block * {self.word(f'panel_{k}')} * BYTES"
        n = len(self._sums(product))
        self.line(f"tile_{n}({rows}, rank, {first}, {panel}, panel_{k}, {depth}, {self.word(f'sums_{k}')}, rows, wide)")

    def _end_of_sum(self, node: Node) -> None:
        k = place(self.row_sums, node)
        partial_sums = f"load(sum_{k} + one * LANES * BYTES, 0, LANES)"
        self.line("for one in range(first, here):")
        self.line(f"put_total({self.word(f'total_{k}')} + one * BYTES, {partial_sums})", 1)
        for key, kept in self.stages.saved.items():
            if kept is node:
                base, pitch = self._buffer(key)
                self.line(f"if {self.word('save')}:", 1)
                self.line(f"put_total({base} + (row + one) * {pitch} + {key[1]} * BYTES, {partial_sums})", 2)


class _Body:
    """What a stage does with one vector of units: the addresses of its rows, and the work."""

    def __init__(self, printer: _Printer, stage: Stage) -> None:
        self.printer, self.stage = printer, stage
        self.addresses: list[str] = []
        self.reads: list[str] = []
        self.equations: list[str] = []
        self.writes: list[str] = []
        self.text: dict[Node, tuple[str, int]] = {}
        for product in stage.products:
            printer.products.append(product)
        needed = printer.stages.needed(stage)
        self.uses = Counter(
            arg
            for node in needed
            if printer.stages.computed(node, stage) and node.op not in PRODUCTS
            for arg in node.inputs
        )
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
        base, pitch = self.printer._buffer(key)
        row = f"{self.printer.states_starts(key)}[t]" if key[0] == "state" else "row"
        return self._at(base.removesuffix("_rows"), f"{base} + ({row} + one) * {pitch}")

    def _rank(self, name: str, pitch: str) -> str:
        """The address of a row of which there is one a sequence."""
        return self._at(name, f"{self.printer.word(f'{name}_ranks')} + one * {self.printer.word(pitch)}")

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
            case "saved":
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
        return self._load(self._rank(printer.temporaries[node], f"{node.axis}_pitch"), 0, node.axis)

    def _input_half(self, column: int) -> str:
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
                self.reads.append(self._assign(node, text))
        elif node.op in PRODUCTS:
            self.reads.append(self._assign(node, self._product(node)))
        else:
            text, strength = self._expression(node)
            kept = node.name or self.uses[node] != 1 or len(text) > LONGEST
            if kept:
                self.equations.append(self._assign(node, text))
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
            tight = strength + (node.op in ("sub", "div") or strength == 3)
            return f"{self._operand(a, strength + (strength == 3))} {sign} {self._operand(b, tight)}", strength
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
            at = self._rank(printer.temporaries[node], f"{node.axis}_pitch")
            self.writes.append(f"store({at}, unit, live, {self._value(node)})")
        for node in self.stage.row_sums:
            k = place(printer.row_sums, node)
            at = self._at(f"sum_{k}", f"{printer.word(f'sum_{k}')} + one * LANES * BYTES")
            self.writes.append(f"store({at}, 0, LANES, load({at}, 0, LANES) + keep({self._value(node.args[0])}, live))")
        if self.stage.keeps:
            self.writes.append(f"if {printer.word('save')}:")
            for (buffer, k), node in self.stage.keeps:
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
