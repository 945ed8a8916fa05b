"""The phases of a step on the CPU: the division of a lowered step into loops over rows and units.

Sums over units, and matrix products of values of the same step, begin a new phase. Inside a phase, the units of a row
are independent of each other. If threads divide the units and a later phase reads *all* units of a result, a barrier
follows the phase that computes it.
"""

from collections.abc import Iterable
from functools import cached_property

from glassgate.engines.axes import PER_ROW, UNITS, Axis
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Column, Kind
from glassgate.engines.llvm_cpu.loops.memory import Carry, Memory, StateBefore, Store
from glassgate.engines.llvm_cpu.loops.phase import MAX_GATES, LeftOperand, Phase, Product, RowSum, Temporary
from glassgate.engines.lowering.forward import Form
from glassgate.engines.lowering.ir import Block, Elementwise, Role, Size, Sum, Value
from glassgate.engines.lowering.passes import lowered_pass
from glassgate.engines.lowering.step import Levels
from glassgate.engines.lowering.step_graph import StepGraph, WeightRows
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.trace import Trace


class Step:
    """The step of one direction, forward or backward.

    Args:
        equations, trace: the equations of the cell and their graphs.
        backward: whether it is the backward step.

    Attributes:
        graph: the graph of the step.
        memory: the columns of inputs and results.
        buffers: the memory that it reads and writes.
        states: the states whose value before the step is read.
        phases: the phases in order.
        barriers: the phases that are followed by a barrier.
        groups: the phases in groups. All phases of a group run on one row before the next row. A phase with products is
            a group of its own, and a barrier ends a group.
        temporaries: the temporaries by their buffer.
        products: all matrix products, by number.
        row_sums: the values that are sums over units, by number.
    """

    def __init__(self, equations: Equations, trace: Trace, backward: bool) -> None:
        self.equations, self.costs, self.backward = equations, trace.costs, backward
        self.graph = StepGraph(lowered_pass(equations, trace, Form(save=True), backward))
        self.memory = Memory(equations, trace, self.graph, backward)
        self.buffers = self.memory.buffers
        results, kept = self.memory.results, self.memory.kept
        self.values = self.graph.with_operands(store.value for store in (*results, *kept))
        before = {self.memory.state_before(value) for value in self.values}
        self.states = tuple(name for name in equations.state if name in before)
        self._overwritten = {result.overwritten for result in results if isinstance(result, Carry)}
        self._recomputed = self._find_recomputed()
        levels = Levels(self.values, self.graph.operands, self._needs_all_units)
        self._level = {value: levels[value] for value in self.values}
        self._delay_gradients()
        axes = {UNITS, *map(self.graph.axis_of, self.values)} - {PER_ROW}
        keys = {(level, axis) for level in self._level.values() for axis in axes}
        self._by_level_and_axis = {key: Phase(*key) for key in sorted(keys)}
        self.result_columns = {
            result.value: result.to for result in results if isinstance(result, Store) and not result.added
        }
        self.row_sums: list[Value] = []
        self._add_products()
        for result in results:
            self._storing_phase(result).writes.append(result)
        for store in kept:
            if self.graph.is_computed(store.value) and not self._is_row_sum(store.value):
                self.phase_of(store.value).keeps.append(store)
        self._add_row_sums()
        self._find_temporaries()
        self._keep_input_terms()
        self.phases = [phase for phase in self._by_level_and_axis.values() if not phase.is_empty]
        self.products = [product for phase in self.phases for product in phase.products]
        for number, product in enumerate(self.products):
            product.number = number
        self.barriers = self._barriers()
        self.groups = self._groups()
        self._temporary_of = self._temporaries()
        self.temporaries = {temporary.buffer: temporary for temporary in self._temporary_of.values()}
        in_place = {temporary.kept for temporary in self._temporary_of.values()}
        for phase in self.phases:
            phase.writes += [Store(value, Column(self._temporary_of[value].buffer)) for value in phase.temporaries]
            phase.keeps = [store for store in phase.keeps if store.to not in in_place]

    # The levels of values.

    def _is_row_sum(self, value: Value) -> bool:
        return isinstance(self.graph.operations.get(value), Sum)

    def _needs_all_units(self, value: Value, operand: Value) -> bool:
        """Whether a value needs all units of an operand, which must be complete before the phase begins."""
        is_product = self.graph.product(value) is not None
        return self._is_row_sum(value) or (is_product and self.memory.state_before(operand) is None)

    def _reads_overwritten(self, value: Value) -> bool:
        """Whether a value is the total gradient of a state, which reads a gradient that the step overwrites."""
        return not self._overwritten.isdisjoint(self.graph.operands(value))

    def _find_recomputed(self) -> set[Value]:
        """Return the values that cost less to recompute than to store and read."""
        costs, graph = self.costs, self.graph
        # For each value, the values from which it is recomputed, and the cost of the operations.
        reads: dict[Value, frozenset[Value]] = {}
        operations: dict[Value, float] = {}
        recomputed = set()
        for value in self.values:
            operation, per_row = graph.operations.get(value), graph.axis_of(value) == PER_ROW
            wide = [arg for arg in graph.operands(value) if graph.axis_of(arg) != PER_ROW]
            cost = costs.of(operation.op) if isinstance(operation, Elementwise) else 0
            is_leaf = not graph.is_computed(value) and value not in self._overwritten and not self._is_d_state(value)
            if per_row or is_leaf or cost > costs.read:
                reads[value], operations[value] = frozenset() if per_row else frozenset([value]), 0
            elif isinstance(operation, Elementwise) and all(arg in reads for arg in wide):
                reads[value] = frozenset().union(*(reads[arg] for arg in wide))
                operations[value] = cost + sum(operations[arg] for arg in wide)
                if operations[value] + costs.read * len(reads[value]) <= costs.carry:
                    recomputed.add(value)
        return recomputed

    def _is_d_state(self, value: Value) -> bool:
        """Whether a value is the gradient of a state at a step, which only the total gradient reads."""
        port = self.graph.ports.get(self.graph.sequences.get(value, value))
        return port is not None and port.role is Role.D_STATES

    def _delay_gradients(self) -> None:
        """Assign the total gradient of each state to the level of its first use.

        Later in the step, the gradient for the previous step overwrites a term of it, see `_storing_phase`.
        """
        first_use: dict[Value, int] = {}
        for value in self.values:
            waits = self.graph.product(value) is not None or self._is_row_sum(value)
            for arg in self.graph.operands(value):
                used = self._level[value] - waits
                first_use[arg] = min(first_use.get(arg, used), used)
        for value in self.values:
            if self._reads_overwritten(value):
                self._level[value] = max(0, first_use.get(value, 0))

    def _units_of(self, value: Value) -> Axis:
        axis = self.graph.axis_of(value)
        return UNITS if axis == PER_ROW else axis

    def phase_of(self, value: Value) -> Phase:
        """The phase of the level and the units of a value."""
        return self._by_level_and_axis[self._level[value], self._units_of(value)]

    def _storing_phase(self, result: Store | Carry) -> Phase:
        """Return the phase that stores a result.

        The gradient for the previous step overwrites the gradient from the following step, so all reads come first.
        """
        level = self._level[result.value]
        if isinstance(result, Carry):
            readers = (v for v in self.values if result.overwritten in self.graph.operands(v))
            level = max([level, *(self._level[v] for v in readers)])
        return self._by_level_and_axis[level, self._units_of(result.value)]

    # The contents of phases.

    def _add_products(self) -> None:
        """Add the matrix products to their phases. Products with the same operand are joined."""
        d_pre = self.memory.d_pre
        for value in self.values:
            contract = self.graph.product(value)
            if contract is None:
                continue
            weight, left, phase = self.graph.weight(contract), self.graph.left_operands(contract), self.phase_of(value)
            if not weight.gates:
                phase.products.append(Product(weight, left[0], self.result_columns.get(left[0]), (value,)))
            elif weight.is_transposed:
                for gates, column in self._adjacent_gates(weight, left, d_pre):
                    rows = weight._replace(gates=gates)
                    phase.products.append(Product(rows, left[0], Column(self.buffers[Kind.D_PRE], column), (value,)))
            else:
                self._join_product(phase, weight._replace(gates=(self._gate_of(value, weight),)), left[0], value)

    def _gate_of(self, value: Value, weight: WeightRows) -> int:
        block = self.graph.operations[value]
        assert isinstance(block, Block), f"{value.name} is the product of one gate"
        return weight.gates[block.at]

    def _join_product(self, phase: Phase, weight: WeightRows, left: Value, value: Value) -> None:
        """Add the product of one gate to a phase, to a product with the same operand if there is one."""
        for product in phase.products:
            if product.weight.name == weight.name and product.left is left and len(product.weight.gates) < MAX_GATES:
                product.weight = weight._replace(gates=(*product.weight.gates, *weight.gates))
                product.results = (*product.results, value)
                return
        phase.products.append(Product(weight, left, self.result_columns.get(left), (value,)))

    def _adjacent_gates(
        self, weight: WeightRows, gradients: tuple[Value, ...], d_pre: dict[tuple[int, str], Value]
    ) -> Iterable[tuple[tuple[int, ...], int]]:
        """Split gates into lists whose gradients are in adjacent columns, so that they form one row vector.

        With several heads, each list has one gate.

        Returns:
            the indices of the gates of each list, and the column of the first gradient.
        """
        columns = {}
        for gate, gradient in zip(weight.gates, gradients, strict=True):
            label = self.equations.gates[gate]
            column = next(k for (k, name), value in d_pre.items() if name == label and value is gradient)
            columns[column] = gate
        lists: list[tuple[tuple[int, ...], int]] = []
        for column, gate in sorted(columns.items()):
            gates, first = lists[-1] if lists else ((), None)
            if first is not None and column == first + len(gates) and weight.heads == 1:
                lists[-1] = (*gates, gate), first
            else:
                lists.append(((gate,), column))
        return lists

    def _add_row_sums(self) -> None:
        """Add each sum over units to the phase that computes its terms. Sums are numbered in the order of phases."""
        sums = [value for value in self.values if self._is_row_sum(value)]
        for phase in self._by_level_and_axis.values():
            for value in sums:
                (added,) = self.graph.operands(value)
                if self.phase_of(added) is phase:
                    phase.row_sums.append(RowSum(len(self.row_sums), added, self._kept_column(value)))
                    self.row_sums.append(value)

    def _kept_column(self, value: Value) -> Column | None:
        return next((store.to for store in self.memory.kept if store.value is value), None)

    def _find_temporaries(self) -> None:
        """Find the temporaries: the values that a phase reads from earlier phases.

        The phases are searched from the last to the first, because a phase that computes a temporary may read others.
        """
        for phase in self._by_level_and_axis.values():
            for product in phase.products:
                if product.column is None and self.memory.state_before(product.left) is None:
                    self.phase_of(product.left).temporaries[product.left] = None
        for phase in reversed(self._by_level_and_axis.values()):
            for value in self.needed_values(phase):
                is_stored = not self.graph.is_computed(value) or self._is_row_sum(value) or value in self.result_columns
                if not (self.computes(phase, value) or is_stored):
                    self.phase_of(value).temporaries[value] = None

    def _keep_input_terms(self) -> None:
        """In training, the last phase that reads a kept input term (W_ih x) adds the bias to it in place."""
        for store in self.memory.kept:
            if not self.graph.is_computed(store.value):
                readers = [p for p in self._by_level_and_axis.values() if store.value in set(self.needed_values(p))]
                readers[-1].keeps.append(store)

    @cached_property
    def _left_operands(self) -> set[Value]:
        return {value for product in self.products for value in self._rows_of(product)}

    def _rows_of(self, product: Product) -> tuple[Value, ...]:
        contract = self.graph.product(product.results[0])
        assert contract is not None
        return self.graph.left_operands(contract)

    def _barriers(self) -> list[Phase]:
        """Return the phases whose results a product reads, in the same step or in the next."""
        left = self._left_operands
        barriers = [
            phase
            for phase in self.phases
            if left & phase.temporaries.keys() or left & {w.value for w in phase.writes if isinstance(w, Store)}
        ]
        next_step_too = any(self.memory.state_before(v) or v not in self.result_columns for v in left)
        if next_step_too and self.phases[-1] not in barriers:
            barriers.append(self.phases[-1])
        return barriers

    def _groups(self) -> list[list[Phase]]:
        groups: list[list[Phase]] = []
        for phase in self.phases:
            before = groups[-1][-1] if groups else None
            if before is None or phase.products or before.products or before in self.barriers:
                groups.append([])
            groups[-1].append(phase)
        return groups

    def _temporaries(self) -> dict[Value, Temporary]:
        temporaries = [value for phase in self.phases for value in phase.temporaries]
        readers: dict[Value, set[int]] = {value: set() for value in temporaries}
        for number, phases in enumerate(self.groups):
            for value in (value for phase in phases for value in self.needed_values(phase)):
                if value in readers:
                    readers[value].add(number)
        memory = {}
        for value in temporaries:
            in_one_group = len(readers[value]) == 1 and value not in self._left_operands
            has_own_memory = in_one_group or value in self._left_operands
            kept = None if has_own_memory else self._kept_column(value)
            buffer = Buffer(Kind.TEMPORARY, value.name, self.graph.axis_of(value))
            memory[value] = Temporary(value, buffer, in_one_group, kept)
        return memory

    # The values of a phase.

    def computes(self, phase: Phase, value: Value) -> bool:
        """Return whether a phase computes a value itself instead of reading it."""
        if not self.graph.is_computed(value) or self._is_row_sum(value):
            return False
        recomputed = value in self._recomputed and value not in self.result_columns
        is_cheap = value.type.dtype == "bool" or self.graph.axis_of(value) == PER_ROW or recomputed
        return is_cheap or self.phase_of(value) is phase

    def needed_values(self, phase: Phase) -> list[Value]:
        """Return all values that a phase computes or reads, each after its operands."""
        needed: set[Value] = set()
        pending = [store.value for store in (*phase.writes, *phase.keeps, *phase.row_sums)] + [*phase.temporaries]
        while pending:
            value = pending.pop()
            if value not in needed:
                needed.add(value)
                if self.computes(phase, value) and self.graph.product(value) is None:
                    pending += self.graph.operands(value)
        return sorted(needed, key=self.graph.order.__getitem__)

    def left_operand(self, product: Product) -> LeftOperand:
        """The row vectors that a product reads."""
        state = self.memory.state_before(product.left)
        rows = StateBefore(state) if state else product.column or Column(self._temporary_of[product.left].buffer)
        columns = len(product.weight.gates) if product.weight.is_transposed and product.weight.gates else 1
        return LeftOperand(rows, self.graph.axis_of(product.left), columns)

    def location(self, value: Value) -> Column | None:
        """The column in which an earlier phase of the step has stored a value; None for a value that is not stored."""
        if not self.graph.is_computed(value):
            return None
        return self.result_columns.get(value) or Column(self._temporary_of[value].buffer)

    def size(self, value: Value) -> Axis | None:
        """The axis whose extent a value is; None for other values."""
        operation = self.graph.operations.get(value)
        known = {axis.name: axis for axis in (UNITS, self.buffers.states[self.equations.state[0]])}
        return known[operation.axis] if isinstance(operation, Size) else None

    def input_columns(self, phase: Phase) -> int:
        """The number of gates whose input product a phase reads."""
        return len({value for value in self.needed_values(phase) if self.memory.is_input_term(value)})
