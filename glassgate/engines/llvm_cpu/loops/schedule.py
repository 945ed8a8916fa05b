"""The division of a step's graph into stages.

Sums over units, and matrix products of values of the same step, begin a new stage. Inside a stage, the units of a row
are independent of each other. If threads divide the units and a later stage reads *all* units of a result, a barrier
follows the stage that computes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from glassgate.engines.axes import PER_ROW, UNITS, Axis
from glassgate.engines.symbolic.graph import Key, Node
from glassgate.engines.symbolic.operations import MASKS, OPERATIONS
from glassgate.engines.symbolic.trace import Trace

PRODUCTS = ("hh", "sum", "hr", "hh_t", "hr_t")
"""The operations that are matrix products: of the recurrent weights, of the projection, and of their transposes."""
LEAVES = ("ih", "state", "parameter", "saved", "noise", "size", "constant")
"""The leaves of graphs. All stages can read them."""
MAX_GATES = 4
"""The largest number of gates of a product. With more gates, 16 registers would hold the sums of at most two rows."""


class Product(NamedTuple):
    """The product of a row vector and a matrix, with one or more sums for each unit.

    Attributes:
        op: the matrix: "hh" for `weight_hh`, "hr" for `weight_hr`, "hh_t" and "hr_t" for their transposes.
        gates: the gates whose rows of `weight_hh` are in the matrix.
        left: the row vector. For "hh_t" it is the first of several row vectors, which are adjacent in their buffer.
        key: the column that stores `left`. None for a temporary and for the state before the step.
        results: the nodes to which the sums contribute.
    """

    op: str
    gates: tuple[str, ...]
    left: Node
    key: Key | None
    results: tuple[Node, ...]


@dataclass(eq=False)
class Stage:
    """One loop over rows and units.

    Attributes:
        level: the largest number of row sums and matrix products on a path from a leaf to a value of the stage.
            Products of the state before the step do not count.
        axis: the axis of its units.
        products: the matrix products.
        stores: the results that the stage stores, each with its column.
        keeps: the values that only training stores, each with its column.
        row_sums: the sums over units that are complete after this stage.
        temporaries: the values that a later stage reads from temporary memory, in the order of insertion.
    """

    level: int
    axis: Axis
    products: list[Product] = field(default_factory=list)
    stores: list[tuple[Key, Node]] = field(default_factory=list)
    keeps: list[tuple[Key, Node]] = field(default_factory=list)
    row_sums: list[Node] = field(default_factory=list)
    temporaries: dict[Node, None] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the stage does nothing."""
        return not (self.products or self.stores or self.keeps or self.row_sums or self.temporaries)


def index_of(nodes: Iterable[Node], node: Node) -> int:
    """Return the index of a node. `list.index` cannot be used, because `==` of nodes returns a new node."""
    return next(k for k, other in enumerate(nodes) if other is node)


class Schedule(list[Stage]):
    """The stages of a graph, in the order in which they run.

    Args:
        trace: the graphs of the cell.
        backward: whether to schedule the backward graph.
        states: the names of the cell's states.
        heads: the number of diagonal blocks of `weight_hh`.

    Attributes:
        recomputed: the values that each stage computes itself instead of reading them, see `computes`.
        result_columns: the column of each result, from which later stages read it. Gradients that the step updates in
            place are not among them.
        barriers: the stages that are followed by a barrier.
        groups: the stages in groups. All stages of a group run on one row before the next row. A stage with products is
            a group of its own, and a barrier ends a group.
        temporaries: the temporaries of all stages.
        shared_row_temporaries: the temporaries that the same group computes and reads. All sequences share one row of
            memory for such a temporary.
        kept: the column of each temporary that training stores in a column instead of temporary memory.
    """

    def __init__(self, trace: Trace, backward: bool, states: tuple[str, ...], heads: int) -> None:
        super().__init__()
        self.trace, self.backward, self.states, self.heads = trace, backward, states, heads
        self.graph = trace.backward if backward else trace.forward
        self.outputs = dict(self.graph.outputs)
        self.saved = {} if backward else trace.saved
        self.recomputed = self._find_recomputed()
        self.level: dict[Node, int] = {}
        for node in self.graph.nodes:
            self.level[node] = self._level(node)
        self._delay_gradients()
        axes = {UNITS, *(node.axis for node in self.graph.nodes)} - {PER_ROW}
        keys = {(level, axis) for level in self.level.values() for axis in axes}
        self.by_level_and_axis = {key: Stage(*key) for key in sorted(keys)}
        in_place = "d_state", "d_parameter"
        self.result_columns = {node: key for key, node in self.outputs.items() if key[0] not in in_place}
        for node in self.graph.nodes:
            self._add_products(node)
        for key, node in self.outputs.items():
            self._storing_stage(key, node).stores.append((key, node))
        for key, node in self.saved.items():
            if key[0] != "state" and node.op not in ("ih", "row_sum"):
                self._stage_of(node).keeps.append((key, node))
        self._find_temporaries()
        self._keep_input_halves()
        self += [stage for stage in self.by_level_and_axis.values() if not stage.is_empty]
        self.temporaries = {node: None for stage in self for node in stage.temporaries}
        self._left_operands = {product.left for stage in self for product in stage.products}
        self.barriers = self._barriers()
        self.groups = self._groups()
        self.shared_row_temporaries = self._shared_row_temporaries()
        in_own_memory = self.shared_row_temporaries | self._left_operands
        self.kept = {
            node: key for key, node in self.saved.items() if node in self.temporaries and node not in in_own_memory
        }

    def _find_recomputed(self) -> set[Node]:
        """Return the values that cost less to recompute than to store and read."""
        costs = self.trace.costs
        # For each value, the values from which it is recomputed, and the cost of the operations.
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
        """Return the level of a node, see `Stage`."""
        before = max((self.level[arg] for arg in node.inputs), default=0)
        from_state = node.op in ("hh", "sum") and node.args[1].op == "state"
        return before + (node.op == "row_sum" or (node.op in PRODUCTS and not from_state))

    def _delay_gradients(self) -> None:
        """Assign each gradient from the following step to the level of its first use.

        Later in the step, the gradient for the previous step overwrites it, see `_storing_stage`.
        """
        first_use: dict[Node, int] = {}
        for node in self.graph.nodes:
            for arg in node.inputs:
                used = self.level[node] - (node.op in PRODUCTS or node.op == "row_sum")
                first_use[arg] = min(first_use.get(arg, used), used)
        for node in self.graph.nodes:
            if node.op == "grad":
                self.level[node] = max(0, first_use.get(node, 0))

    def _stage_of(self, node: Node) -> Stage:
        return self.by_level_and_axis[self.level[node], UNITS if node.axis == PER_ROW else node.axis]

    def _storing_stage(self, key: Key, node: Node) -> Stage:
        """Return the stage that stores a result.

        The gradient for the previous step overwrites the gradient from the following step, so all reads come first.
        """
        level = self.level[node]
        if key[0] == "d_state":
            gradients = [n for n in self.graph.nodes if n.op == "grad" and n.args[0] == self.states[key[1]]]
            level = max([level, *(self.level[n] for n in gradients)])
        return self.by_level_and_axis[level, UNITS if node.axis == PER_ROW else node.axis]

    def _add_products(self, node: Node) -> None:
        """Add the matrix products and the row sum of a node to its stage. Products with the same operand are joined."""
        if node.op == "row_sum":
            self._stage_of(node.args[0]).row_sums.append(node)
        elif node.op in ("hh", "sum", "hr"):
            stage, left = self._stage_of(node), node.args[-1]
            for k, product in enumerate(stage.products):
                if product.op == "hh" and product.left is left and len(product.gates) < MAX_GATES:
                    gates, results = (*product.gates, node.args[0]), (*product.results, node)
                    stage.products[k] = Product("hh", gates, left, product.key, results)
                    return
            op, gates = ("hr", ()) if node.op == "hr" else ("hh", (node.args[0],))
            stage.products.append(Product(op, gates, left, self.result_columns.get(left), (node,)))
        elif node.op == "hr_t":
            left = node.args[0]
            self._stage_of(node).products.append(Product("hr_t", (), left, self.result_columns.get(left), (node,)))
        elif node.op == "hh_t":
            gates, *gradients = node.args
            for pairs in self._adjacent_gates(gates, gradients):
                names, left = tuple(gate for gate, _ in pairs), pairs[0][1]
                key = "d_pre", self.column(names[0], left)
                self._stage_of(node).products.append(Product("hh_t", names, left, key, (node,)))

    def column(self, gate: str, gradient: Node) -> int:
        """Return the column of a gate's gradient in the buffer of all such gradients."""
        products = (*self.trace.hh_only, *self.trace.shared)
        return next(k for k, p in enumerate(products) if p.args[0] == gate and self.outputs["d_pre", k] is gradient)

    def _adjacent_gates(self, gates: tuple[str, ...], gradients: list[Node]) -> list[list[tuple[str, Node]]]:
        """Split gates into lists whose gradients are in adjacent columns, so that they form one row vector.

        With several heads, each list has one gate.
        """
        lists: list[list[tuple[str, Node]]] = []
        previous = None
        for gate, gradient in zip(gates, gradients, strict=True):
            column = self.column(gate, gradient)
            if previous is None or column != previous + 1 or self.heads > 1:
                lists.append([])
            lists[-1].append((gate, gradient))
            previous = column
        return lists

    def _find_temporaries(self) -> None:
        """Find the temporaries: the values that a stage reads from earlier stages.

        The stages are searched from the last to the first, because a stage that computes a temporary may read others.
        """
        for stage in self.by_level_and_axis.values():
            for product in stage.products:
                if product.left.op != "state" and product.key is None:
                    self._stage_of(product.left).temporaries[product.left] = None
        for stage in reversed(self.by_level_and_axis.values()):
            for node in self.needed_values(stage):
                is_stored = node.op in (*LEAVES, "row_sum") or node in self.result_columns
                if not (self.computes(stage, node) or is_stored):
                    self._stage_of(node).temporaries[node] = None

    def _keep_input_halves(self) -> None:
        """In training, the last stage that reads a saved input half (W_ih x) adds the bias to it in place."""
        for key, node in self.saved.items():
            if node.op == "ih":
                readers = [stage for stage in self.by_level_and_axis.values() if node in set(self.needed_values(stage))]
                readers[-1].keeps.append((key, node))

    def _barriers(self) -> list[Stage]:
        """Return the stages whose results a product reads, in the same step or in the next."""
        barriers = [
            stage
            for stage in self
            if self._left_operands & stage.temporaries.keys()
            or self._left_operands & {node for key, node in stage.stores if key[0] != "d_state"}
        ]
        next_step_too = any(left.op == "state" or left not in self.result_columns for left in self._left_operands)
        if next_step_too and self[-1] not in barriers:
            barriers.append(self[-1])
        return barriers

    def _groups(self) -> list[list[Stage]]:
        groups: list[list[Stage]] = []
        for stage in self:
            before = groups[-1][-1] if groups else None
            if before is None or stage.products or before.products or before in self.barriers:
                groups.append([])
            groups[-1].append(stage)
        return groups

    def _shared_row_temporaries(self) -> set[Node]:
        group_of = {id(stage): k for k, stages in enumerate(self.groups) for stage in stages}
        readers: dict[Node, set[int]] = {node: set() for node in self.temporaries}
        for stage in self:
            for node in self.needed_values(stage):
                if node in readers:
                    readers[node].add(group_of[id(stage)])
            for node in (product.left for product in stage.products):
                if node in readers:
                    readers[node].add(-1)
        return {node for node, groups in readers.items() if len(groups) == 1}

    def computes(self, stage: Stage, node: Node) -> bool:
        """Return whether a stage computes a value itself instead of reading it."""
        if node.op in LEAVES or node.op == "row_sum":
            return False
        recomputed = node in self.recomputed and node not in self.result_columns
        return node.op in MASKS or node.axis == PER_ROW or recomputed or self._stage_of(node) is stage

    def needed_values(self, stage: Stage) -> list[Node]:
        """Return all values that a stage computes or reads, each after its operands."""
        needed: set[Node] = set()
        pending = [node for _, node in (*stage.stores, *stage.keeps)]
        pending += [*(node.args[0] for node in stage.row_sums), *stage.temporaries]
        while pending:
            node = pending.pop()
            if node not in needed:
                needed.add(node)
                if self.computes(stage, node) and node.op not in PRODUCTS:
                    pending += node.inputs
        return sorted(needed, key=lambda node: node.serial)
