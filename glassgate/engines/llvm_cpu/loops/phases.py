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
from glassgate.engines.lowering.ir import Block, Elementwise, Role, Size, Value
from glassgate.engines.lowering.passes import lowered_pass
from glassgate.engines.lowering.step import Key
from glassgate.engines.lowering.step_graph import GraphProgram, StepGraph, WeightRows
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.trace import Trace


class Step(GraphProgram[Phase]):
    """The step of one direction, forward or backward.

    Args:
        equations, trace: the equations of the cell and their graphs.
        backward: whether it is the backward step.

    Attributes:
        graph: the graph of the step.
        memory: the columns of inputs and results.
        buffers: the memory that it reads and writes.
        states: the states whose value before the step is read.
        barriers: the phases that are followed by a barrier.
        groups: the phases in groups. All phases of a group run on one row before the next row. A phase with products is
            a group of its own, and a barrier ends a group.
        temporaries: the temporaries by their buffer.
        products: all matrix products, by number.
        row_sums: the values that are sums over units, by number.
    """

    def __init__(self, equations: Equations, trace: Trace, backward: bool) -> None:
        self.equations, self.costs, self.backward = equations, trace.costs, backward
        graph = StepGraph(lowered_pass(equations, trace, Form(save=True), backward))
        self.memory = Memory(equations, trace, graph, backward)
        self.buffers = self.memory.buffers
        results, kept = self.memory.results, self.memory.kept
        super().__init__(graph, (store.value for store in (*results, *kept)), Phase)
        before = {self.memory.state_before(value) for value in self.values}
        self.states = tuple(name for name in equations.state if name in before)
        self._overwritten = {result.overwritten for result in results if isinstance(result, Carry)}
        self._recomputed = self._find_recomputed()
        self._delay_gradients()
        self.result_columns = {
            result.value: result.to for result in results if isinstance(result, Store) and not result.added
        }
        stores: list[tuple[Key, Store | Carry]] = [(self._storing_key(result), result) for result in results]
        keeps = [(self.key_of(store.value), store) for store in kept if not self.is_read(store.value)]
        self.divide([(key, store.value) for key, store in (*stores, *keeps)])
        self._add_products()
        for key, result in stores:
            self.phases[key].writes.append(result)
        for key, store in keeps:
            self.phases[key].keeps.append(store)
        self._keep_input_terms()
        self.row_sums = [value for phase in self.phases.values() for value in phase.sums]
        for phase in self.phases.values():
            phase.row_sums = [self._row_sum(value) for value in phase.sums]
            published = (value for value in phase.published if value not in self.result_columns)
            phase.temporaries = list(dict.fromkeys([*published, *phase.stored]))
        self.products = [product for phase in self.phases.values() for product in phase.products]
        for number, product in enumerate(self.products):
            product.number = number
        self.barriers = self._barriers()
        self.groups = self._groups()
        self._temporary_of = self._temporaries()
        self.temporaries = {temporary.buffer: temporary for temporary in self._temporary_of.values()}
        in_place = {temporary.kept for temporary in self._temporary_of.values()}
        for phase in self.phases.values():
            phase.writes += [Store(value, Column(self._temporary_of[value].buffer)) for value in phase.temporaries]
            phase.keeps = [store for store in phase.keeps if store.to not in in_place]

    # The division into phases.

    def is_in_results(self, value: Value) -> bool:
        """Whether a value is in a column of the results."""
        return value in self.result_columns

    def is_recomputed(self, value: Value) -> bool:
        """Whether each phase computes a value again: a mask, a number per row, or a value that costs little."""
        recomputed = value in self._recomputed and value not in self.result_columns
        return value.type.dtype == "bool" or super().is_recomputed(value) or recomputed

    def needs_all_units(self, value: Value, operand: Value) -> bool:
        """Whether a value needs all units of an operand. The state before the step is complete."""
        return super().needs_all_units(value, operand) and (
            self.is_sum(value) or self.memory.state_before(operand) is None
        )

    def _reads_overwritten(self, value: Value) -> bool:
        """Whether a value is the total gradient of a state, which reads a gradient that the step overwrites."""
        return not self._overwritten.isdisjoint(self.operands(value))

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

        Later in the step, the gradient for the previous step overwrites a term of it, see `_storing_key`.
        """
        first_use: dict[Value, int] = {}
        for value in self.values:
            waits = self.is_product(value) or self.is_sum(value)
            for arg in self.operands(value):
                used = self.level[value] - waits
                first_use[arg] = min(first_use.get(arg, used), used)
        for value in self.values:
            if self._reads_overwritten(value):
                self.level[value] = max(0, first_use.get(value, 0))

    def _storing_key(self, result: Store | Carry) -> Key:
        """Return the phase that stores a result.

        The gradient for the previous step overwrites the gradient from the following step, so all reads come first.
        """
        level, axis = self.key_of(result.value)
        if isinstance(result, Carry):
            readers = (v for v in self.values if result.overwritten in self.operands(v))
            level = max([level, *(self.level[v] for v in readers)])
        return level, axis

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

    def _row_sum(self, value: Value) -> RowSum:
        (added,) = self.operands(value)
        return RowSum(self.row_sums.index(value), added, self._kept_column(value))

    def _kept_column(self, value: Value) -> Column | None:
        return next((store.to for store in self.memory.kept if store.value is value), None)

    def _keep_input_terms(self) -> None:
        """In training, the last phase that reads a kept input term (W_ih x) adds the bias to it in place."""
        for store in self.memory.kept:
            if not self.graph.is_computed(store.value):
                readers = [phase for phase in self.phases.values() if store.value in phase.values]
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
            for phase in self.phases.values()
            if left & {*phase.temporaries} or left & {w.value for w in phase.writes if isinstance(w, Store)}
        ]
        next_step_too = any(self.memory.state_before(v) or v not in self.result_columns for v in left)
        last = [*self.phases.values()][-1]
        if next_step_too and last not in barriers:
            barriers.append(last)
        return barriers

    def _groups(self) -> list[list[Phase]]:
        groups: list[list[Phase]] = []
        for phase in self.phases.values():
            before = groups[-1][-1] if groups else None
            if before is None or phase.products or before.products or before in self.barriers:
                groups.append([])
            groups[-1].append(phase)
        return groups

    def _temporaries(self) -> dict[Value, Temporary]:
        temporaries = [value for phase in self.phases.values() for value in phase.temporaries]
        readers: dict[Value, set[int]] = {value: set() for value in temporaries}
        for number, phases in enumerate(self.groups):
            for value in (value for phase in phases for value in phase.values):
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

    # The memory of values.

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
        return len({value for value in phase.values if self.memory.is_input_term(value)})
