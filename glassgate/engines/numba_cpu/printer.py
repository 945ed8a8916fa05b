"""A cell's graph to the readable text of one kernel; what the text calls is in `language.py`."""

from dataclasses import dataclass, field

from glassgate.engines.numba_cpu.body import CALLS, Body, broken
from glassgate.engines.numba_cpu.stages import Product, Stage, Stages, place
from glassgate.engines.symbolic.graph import Key, Node

RESERVED = frozenset(
    {"address", "ahead", "before", "block", "blocks", "done", "fetch", "fill", "first_block", "flags", "here"}
    | {"hh_ahead", "high", "ih_ahead", "is_reset", "job", "keep", "live", "load", "locate", "meet", "met", "near"}
    | {"number", "one", "panel", "point", "put_total", "rank", "reset", "row", "rows", "shape_of_tiles", "step"}
    | {"store", "t", "unit", "wide", "words"}
    | {*CALLS.values(), "int", "max", "min", "range", "float", "BYTES", "LANES", "H", "P"}
)
"""Names that a kernel uses itself; an author's value of that name gets an underscore."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A printed kernel and what its caller must hand over.

    Attributes:
        text: the Python source of one function of one argument, the address of the words.
        words: names of the 64-bit integers behind that address, in order, `first` and `last` at the end.
        products: the matrices to pack, by the number in `weights_0`, `weights_1`, ...
        temporaries: rows of scratch memory by name, each as wide as its axis says, one a sequence.
        of_one_row: such memory of which all sequences share one row, as wide as whole vectors.
        row_sums: how many sums over a row there are.
        split_units: whether threads can share the units of a row.
    """

    text: str
    words: tuple[str, ...]
    products: tuple[Product, ...]
    temporaries: dict[str, str]
    of_one_row: dict[str, str]
    row_sums: int
    split_units: bool


def print_kernel(stages: Stages, title: str, states: tuple[str, ...]) -> Kernel:
    """The text of the forward or the backward kernel."""
    return Printer(stages, states).kernel(title)


@dataclass
class Printer:
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
        self.shared = self._shared_stages()
        self.passes = self._passes()
        self.of_one_row = self._of_one_row()
        self.kept = self._kept()
        self.fetched: set[str] = set()
        """Buffers of which each row has been read before."""

    def kernel(self, title: str) -> Kernel:
        """Print the loop over time, then what it needs at the top."""
        name = "backward" if self.stages.backward else "forward"
        for word in ("steps", "origin", "turn"):
            self.word(word)
        for word in ("sizes", "starts"):
            self.word(word, "words")
        self.line("for step in range(steps):")
        self.depth += 1
        self._step()
        for stages in self.passes:
            if stages[0].products:
                self._stage_of_products(stages[0])
            else:
                self._row_by_row(stages)
            if stages[-1] in self.shared:
                self.line(f"met = meet({self.word('barrier')}, {self.word('parties')}, met)")
        for word in ("first", "last"):
            self.word(word)
        head = [(0, f'"""{title}"""'), (0, ""), (0, f"def {name}(address):")]
        head += [(1, f"{word} = {how.format(k)}") for k, (word, how) in enumerate(self.words.items())]
        head.insert(3, (1, "job = words(address)"))
        if self.shared:
            head.append((1, "met = 1"))
        text = "\n".join("    " * depth + line for depth, line in [*head, *self.lines]) + "\n"
        return Kernel(
            text,
            tuple(self.words),
            tuple(self.products),
            {name: node.axis for node, name in self.temporaries.items() if node not in self.of_one_row},
            {name: node.axis for node, name in self.temporaries.items() if node in self.of_one_row},
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
            taken |= {f"sum_{k}" for k in range(len(self.row_sums))}
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

    def _passes(self) -> list[list[Stage]]:
        """Stages without products that can follow each other row by row; any other stage alone."""
        passes: list[list[Stage]] = []
        for stage in self.stages:
            before = passes[-1][-1] if passes else None
            if before is None or stage.products or before.products or before in self.shared:
                passes.append([])
            passes[-1].append(stage)
        return passes

    def _of_one_row(self) -> set[Node]:
        """Temporaries that no other pass reads: every row can have them in the same place."""
        of_pass = {id(stage): k for k, stages in enumerate(self.passes) for stage in stages}
        readers: dict[Node, set[int]] = {node: set() for node in self.temporaries}
        for stage in self.stages:
            for node in self.stages.needed(stage):
                if node in readers:
                    readers[node].add(of_pass[id(stage)])
            for node in (product.left for product in stage.products):
                if node in readers:
                    readers[node].add(-1)
        return {node for node, passes in readers.items() if len(passes) == 1}

    def _kept(self) -> dict[Node, Key]:
        """Temporaries that training keeps: there they lie where they are kept."""
        own = self.of_one_row | {product.left for stage in self.stages for product in stage.products}
        return {node: key for key, node in self.stages.saved.items() if node in self.temporaries and node not in own}

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
                    f"{self.word(f'{name}_starts', 'words')}[before], sizes[before], "
                    f"{self.word(f'{name}_0')}, {self.word(f'{name}_restart')})"
                )

    def _row_by_row(self, stages: list[Stage]) -> None:
        """Stages one after the other for each row, so that what they tell each other stays near the processor."""
        known: set[str] = set()
        self.line("for one in range(first, here):")
        self.depth += 1
        for stage in stages:
            body = Body(self, stage)
            sums = [place(self.row_sums, node) for node in stage.row_sums]
            self._lines([line for line in body.addresses if line not in known])
            known |= set(body.addresses)
            ahead = [name for name in body.columns if name not in self.fetched]
            for name in ahead:
                self.line(f"{name}_ahead = {name}_rows + (starts[t + turn] + one) * {name}_pitch")
            self._lines([f"sum_{k} = fill(0.0)" for k in sums])
            first, last = self._units(stage)
            self.line(f"for unit in range({first}, {last}, LANES):")
            self.line(f"live = {self.word(stage.axis)} - unit", 1)
            self.depth += 1
            for name in ahead:
                at, columns = f"{name}_ahead + unit * BYTES", body.columns[name]
                self.line(f"fetch({at}, {name}_pitch, 1, {columns}, H * BYTES, LANES * BYTES)")
            self.fetched |= body.columns.keys()
            self._lines(body.work)
            self.depth -= 1
            self._totals(stage, {k: f"sum_{k}" for k in sums})
        self.depth -= 1

    def _stage_of_products(self, stage: Stage) -> None:
        sums = [place(self.row_sums, node) for node in stage.row_sums]
        places = {k: f"{self.word(f'sum_{k}')} + one * LANES * BYTES, 0, LANES" for k in sums}
        if sums:
            self.line("for one in range(first, here):")
        for at in places.values():
            self.line(f"store({at}, fill(0.0))", 1)
        self._product_loops(stage, Body(self, stage))
        if sums:
            self.line("for one in range(first, here):")
            self.depth += 1
            self._totals(stage, {k: f"load({at})" for k, at in places.items()})
            self.depth -= 1

    def _units(self, stage: Stage) -> tuple[str, str]:
        first, last = ("unit_0", "unit_1") if stage.axis == "H" else ("out_0", "out_1")
        return self.word(first), self.word(last)

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            for part in broken(line):
                self.line(part)

    def _product_loops(self, stage: Stage, body: Body) -> None:
        heads = self.stages.heads > 1
        self.fetched |= body.columns.keys()
        numbers = [self.products.index(product) for product in stage.products]
        for k in numbers:
            self._point(k)
        most = max(len(product.results) for product in stage.products)
        self.line(f"high, wide = shape_of_tiles(here - first, MOST_ROWS_{most}, {1 if heads else f'ROOM_{most}'})")
        if heads:
            self.line(f"first_block, done = {self.word('block_0')}, 0")
            self.line(f"blocks = {self.word('block_1')} - first_block")
        else:
            first, last = self._units(stage)
            self.line(f"first_block, done = {first} // LANES, 0")
            self.line(f"blocks = ({last} + LANES - 1) // LANES - first_block")
        self.line("while done < blocks:")
        self.depth += 1
        self.line("while done + wide > blocks:")
        self.line("wide //= 2", 1)
        # To and fro: the weights that the step before has read last are the first ones here, and still in the cache.
        self.line("block = first_block + (done if step % 2 == 0 else blocks - done - wide)")
        self.line("for rank in range(first, here, high):")
        self.depth += 1
        self.line("rows = min(high, here - rank)")
        if columns := len({node.args[0] for node in body.text if node.op in ("ih", "sum")}):
            self.line("ahead = ih_rows + (row + rank) * ih_pitch + block * LANES * BYTES")
            self.line(f"fetch(ahead, ih_pitch, rows, {columns}, H * BYTES, wide * LANES * BYTES)")
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
            size = f"{len(self.products[k].results)} * LANES * BYTES"
            self.line(f"sums_at_{k} = sums_{k} + (near * wide + panel) * {size}")
        self._lines(body.work)
        self.depth -= 3
        self.line("done += wide")
        self.depth -= 1

    def _point(self, k: int) -> None:
        """Where the row vectors lie that a product multiplies."""
        left = self.products[k].left
        if left.op == "state":
            return
        rows = self.word(f"left_{k}", "words")
        if left in self.stages.homes:
            base, pitch = self.buffer(self.stages.homes[left])
            start = f"{self.states_starts(self.stages.homes[left])}[t]"
            self.line(f"point({rows}, first, here, {base} + {start} * {pitch}, {pitch})")
        else:
            name = self.temporaries[left]
            self.line(f"point({rows}, first, here, {self.word(f'{name}_ranks')}, {self.word(f'{left.axis}_pitch')})")

    def states_starts(self, key: Key) -> str:
        """The first row of each step, in a buffer of states or in any other."""
        return self.word(f"{self.states[key[1]]}_starts", "words") if key[0] == "state" else "starts"

    def buffer(self, key: Key) -> tuple[str, str]:
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
        n = len(product.results)
        self.line(f"tile_{n}({rows}, rank, {first}, {panel}, panel_{k}, {depth}, {self.word(f'sums_{k}')}, rows, wide)")

    def _totals(self, stage: Stage, partial_sums: dict[int, str]) -> None:
        """The end of a row's sums over its units."""
        for k, partial_sum in partial_sums.items():
            self.line(f"put_total({self.word(f'total_{k}')} + one * BYTES, {partial_sum})")
        sums = set(stage.row_sums)
        kept = [(key, place(self.row_sums, node)) for key, node in self.stages.saved.items() if node in sums]
        if kept:
            self.line(f"if {self.word('save')}:")
        for key, k in kept:
            base, pitch = self.buffer(key)
            self.line(f"put_total({base} + (row + one) * {pitch} + {key[1]} * BYTES, {partial_sums[k]})", 1)
