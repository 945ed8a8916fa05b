"""The division of a graph into stages, at matrix products and row sums. The units of a stage are independent.

If threads share the units of a row and a later stage reads *all* units of a result, a barrier follows its stage.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from glassgate.engines.axes import PER_ROW, UNITS, Axis
from glassgate.engines.symbolic.graph import Key, Node
from glassgate.engines.symbolic.operations import MASKS, OPERATIONS
from glassgate.engines.symbolic.trace import Trace

PRODUCTS = ("hh", "sum", "hr", "hh_t", "hr_t")
LEAVES = ("ih", "state", "parameter", "saved", "noise", "size", "constant")
"""The leaves, which all stages can read."""
MOST_GATES = 4
"""The largest number of gates of a product. With more gates, 16 registers would hold the sums of at most two rows."""


class Product(NamedTuple):
    """The product of a row vector and a matrix, with one or more sums for each unit.

    Attributes:
        op: "hh" or "hr", or the products with the transposed matrix, "hh_t" or "hr_t".
        gates: the gates whose rows of `weight_hh` are in the matrix.
        left: the row vector. For "hh_t" it is the first of several row vectors, which are adjacent in their buffer.
        key: the column of `left` in its buffer; None for a temporary and for the state before the step.
        results: the nodes to which the sums contribute.
    """

    op: str
    gates: tuple[str, ...]
    left: Node
    key: Key | None
    results: tuple[Node, ...]


@dataclass(eq=False)
class Stage:
    """One pass over rows and units."""

    level: int
    axis: Axis
    products: list[Product] = field(default_factory=list)
    stores: list[tuple[Key, Node]] = field(default_factory=list)
    """Results, and the columns that store them."""
    keeps: list[tuple[Key, Node]] = field(default_factory=list)
    """Values that only training stores, and the columns that store them."""
    row_sums: list[Node] = field(default_factory=list)
    """Sums over the units that end with this stage."""
    temporaries: dict[Node, None] = field(default_factory=dict)
    """Values of this stage that a later stage reads from temporary memory."""

    @property
    def empty(self) -> bool:
        """Whether the stage does nothing."""
        return not (self.products or self.stores or self.keeps or self.row_sums or self.temporaries)


def place(nodes: Iterable[Node], node: Node) -> int:
    """The index of a node. `list.index` cannot be used, because `==` of nodes returns a new node."""
    return next(k for k, other in enumerate(nodes) if other is node)


class Schedule(list[Stage]):
    """The stages of a graph, in the order in which they run.

    Args:
        trace: the graphs of the cell.
        backward: whether to schedule the backward graph.
        states: the names of the cell's states.
        heads: the number of diagonal blocks of `weight_hh`.

    Attributes:
        homes: for each value that a buffer of the call stores, its column there. Later stages read it from this buffer.
        barriers: the stages that a barrier follows.
        passes: groups of stages that can alternate row by row. A stage with products is a group of its own.
        of_one_pass: the temporaries that only one group of `passes` reads, so that all rows can share their memory.
        kept: the temporaries that training keeps, with the columns where it stores them instead.
    """

    def __init__(self, trace: Trace, backward: bool, states: tuple[str, ...], heads: int) -> None:
        super().__init__()
        self.trace, self.backward, self.states, self.heads = trace, backward, states, heads
        self.graph = trace.backward if backward else trace.forward
        self.outputs = dict(self.graph.outputs)
        self.saved = {} if backward else trace.saved
        self.recomputed = self._recomputed()
        """The values that each stage recomputes if it needs them."""
        self.level: dict[Node, int] = {}
        for node in self.graph.nodes:
            self.level[node] = self._level(node)
        self._delay_gradients()
        axes = {UNITS, *(node.axis for node in self.graph.nodes)} - {PER_ROW}
        places = {(level, axis) for level in self.level.values() for axis in axes}
        self.by_place = {place: Stage(*place) for place in sorted(places)}
        self.homes = {node: key for key, node in self.outputs.items() if key[0] not in ("d_state", "d_parameter")}
        for node in self.graph.nodes:
            self._place(node)
        for key, node in self.outputs.items():
            self._home(key, node).stores.append((key, node))
        for key, node in self.saved.items():
            if key[0] != "state" and node.op not in ("ih", "row_sum"):
                self._at(node).keeps.append((key, node))
        self._carry_over()
        self._keep_input_halves()
        self += [stage for stage in self.by_place.values() if not stage.empty]
        self.temporaries = {node: None for stage in self for node in stage.temporaries}
        self._lefts = {product.left for stage in self for product in stage.products}
        self.barriers = self._barriers()
        self.passes = self._passes()
        self.of_one_pass = self._of_one_pass()
        own = self.of_one_pass | self._lefts
        self.kept = {node: key for key, node in self.saved.items() if node in self.temporaries and node not in own}

    def _recomputed(self) -> set[Node]:
        """The values that cost less to recompute than to store and read."""
        costs = self.trace.costs
        reads: dict[Node, frozenset[Node]] = {}
        operations: dict[Node, float] = {}
        recomputed = set()
        for node in self.graph.nodes:
            wide = [arg for arg in node.inputs if arg.axis != PER_ROW]
            if node.axis == PER_ROW or node.op in LEAVES or costs.of(node.op) > costs.read:
                reads[node], operations[node] = frozenset([node] if node.axis != PER_ROW else []), 0
            elif node.op in OPERATIONS and all(arg in reads for arg in wide):
                reads[node] = frozenset().union(*(reads[arg] for arg in wide))
                operations[node] = costs.of(node.op) + sum(operations[arg] for arg in wide)
                if operations[node] + costs.read * len(reads[node]) <= costs.carry:
                    recomputed.add(node)
        return recomputed

    def _level(self, node: Node) -> int:
        before = max((self.level[arg] for arg in node.inputs), default=0)
        from_state = node.op in ("hh", "sum") and node.args[1].op == "state"
        return before + (node.op == "row_sum" or (node.op in PRODUCTS and not from_state))

    def _delay_gradients(self) -> None:
        """Assign each gradient from the following step to the level of its first use.

        `_home` must store the gradient for the previous step, which overwrites it, only after it was read.
        """
        users: dict[Node, int] = {}
        for node in self.graph.nodes:
            for arg in node.inputs:
                used = self.level[node] - (node.op in PRODUCTS or node.op == "row_sum")
                users[arg] = min(users.get(arg, used), used)
        for node in self.graph.nodes:
            if node.op == "grad":
                self.level[node] = max(0, users.get(node, 0))

    def _at(self, node: Node) -> Stage:
        return self.by_place[self.level[node], UNITS if node.axis == PER_ROW else node.axis]

    def _home(self, key: Key, node: Node) -> Stage:
        """The stage that stores a result.

        The gradient for the previous step overwrites that from the following step, so it is stored after the reads.
        """
        level = self.level[node]
        if key[0] == "d_state":
            read = [n for n in self.graph.nodes if n.op == "grad" and n.args[0] == self.states[key[1]]]
            level = max([level, *(self.level[n] for n in read)])
        return self.by_place[level, UNITS if node.axis == PER_ROW else node.axis]

    def _place(self, node: Node) -> None:
        if node.op == "row_sum":
            self._at(node.args[0]).row_sums.append(node)
        elif node.op in ("hh", "sum", "hr"):
            stage, left = self._at(node), node.args[-1]
            for k, product in enumerate(stage.products):
                if product.op == "hh" and product.left is left and len(product.gates) < MOST_GATES:
                    gates, results = (*product.gates, node.args[0]), (*product.results, node)
                    stage.products[k] = Product("hh", gates, left, product.key, results)
                    return
            op, gates = ("hr", ()) if node.op == "hr" else ("hh", (node.args[0],))
            stage.products.append(Product(op, gates, left, self.homes.get(left), (node,)))
        elif node.op == "hr_t":
            left = node.args[0]
            self._at(node).products.append(Product("hr_t", (), left, self.homes.get(left), (node,)))
        elif node.op == "hh_t":
            gates, *gradients = node.args
            for run in self._runs(gates, gradients):
                names, left = tuple(gate for gate, _ in run), run[0][1]
                key = "d_pre", self.column(names[0], left)
                self._at(node).products.append(Product("hh_t", names, left, key, (node,)))

    def column(self, gate: str, gradient: Node) -> int:
        """The column of a gate's gradient in the buffer of all such gradients."""
        products = (*self.trace.hh_only, *self.trace.shared)
        return next(k for k, p in enumerate(products) if p.args[0] == gate and self.outputs["d_pre", k] is gradient)

    def _runs(self, gates: tuple[str, ...], gradients: list[Node]) -> list[list[tuple[str, Node]]]:
        """Split gates into runs with adjacent gradients, which form one row vector. With heads each run is one gate."""
        runs: list[list[tuple[str, Node]]] = []
        last = None
        for gate, gradient in zip(gates, gradients, strict=True):
            column = self.column(gate, gradient)
            if last is None or column != last + 1 or self.heads > 1:
                runs.append([])
            runs[-1].append((gate, gradient))
            last = column
        return runs

    def _carry_over(self) -> None:
        """Find the temporaries: values that a stage reads from earlier ones.

        The last stage comes first, because the computation of a temporary needs other values.
        """
        for stage in self.by_place.values():
            for product in stage.products:
                if product.left.op != "state" and product.key is None:
                    self._at(product.left).temporaries[product.left] = None
        for stage in reversed(self.by_place.values()):
            for node in self.needed(stage):
                if not self.computed(node, stage) and node.op not in (*LEAVES, "row_sum") and node not in self.homes:
                    self._at(node).temporaries[node] = None

    def _keep_input_halves(self) -> None:
        """In training, store input halves with their bias added.

        They overwrite the input halves without bias in the last stage that reads these.
        """
        for key, node in self.saved.items():
            if node.op == "ih":
                readers = [stage for stage in self.by_place.values() if node in set(self.needed(stage))]
                readers[-1].keeps.append((key, node))

    def _barriers(self) -> list[Stage]:
        """The stages whose results a product reads, in the same step or in the next."""
        shared = [
            stage
            for stage in self
            if self._lefts & stage.temporaries.keys()
            or self._lefts & {node for key, node in stage.stores if key[0] != "d_state"}
        ]
        next_step_too = any(left.op == "state" or left not in self.homes for left in self._lefts)
        if next_step_too and self[-1] not in shared:
            shared.append(self[-1])
        return shared

    def _passes(self) -> list[list[Stage]]:
        passes: list[list[Stage]] = []
        for stage in self:
            before = passes[-1][-1] if passes else None
            if before is None or stage.products or before.products or before in self.barriers:
                passes.append([])
            passes[-1].append(stage)
        return passes

    def _of_one_pass(self) -> set[Node]:
        number = {id(stage): k for k, stages in enumerate(self.passes) for stage in stages}
        readers: dict[Node, set[int]] = {node: set() for node in self.temporaries}
        for stage in self:
            for node in self.needed(stage):
                if node in readers:
                    readers[node].add(number[id(stage)])
            for node in (product.left for product in stage.products):
                if node in readers:
                    readers[node].add(-1)
        return {node for node, passes in readers.items() if len(passes) == 1}

    def computed(self, node: Node, stage: Stage) -> bool:
        """Whether the stage computes the value itself instead of reading it."""
        if node.op in LEAVES or node.op == "row_sum":
            return False
        recomputed = node in self.recomputed and node not in self.homes
        return node.op in MASKS or node.axis == PER_ROW or recomputed or self._at(node) is stage

    def needed(self, stage: Stage) -> list[Node]:
        """All values that the stage computes or reads, each after its operands."""
        needed: set[Node] = set()
        pending = [node for _, node in (*stage.stores, *stage.keeps)]
        pending += [*(node.args[0] for node in stage.row_sums), *stage.temporaries]
        while pending:
            node = pending.pop()
            if node not in needed:
                needed.add(node)
                if self.computed(node, stage) and node.op not in PRODUCTS:
                    pending += node.inputs
        return sorted(needed, key=lambda node: node.serial)
