"""Places the items of a diagram on a grid: states on horizontal rails at the top, gates side by side at the bottom.

The spine of a state is the shortest path from the state through elementwise operations to its new value. All items of
a spine are on one row, the rail of the state. An item hangs from rails if it reads only values from rails above it.
"""

from collections import deque
from dataclasses import dataclass

from glassgate.glass.diagrams.flow import Flow, Item, Value


@dataclass(frozen=True)
class Plan:
    """Items on a grid. Gates are in row 0, and rows count upward.

    Attributes:
        columns: the number of columns.
        row: the row of each item.
        span: the first and the last column of each item.
        rails: the row of each rail, by state.
        rail_of: for each item on a rail, the state of this rail.
    """

    columns: int
    row: dict[Item, int]
    span: dict[Item, tuple[int, int]]
    rails: dict[str, int]
    rail_of: dict[Item, str]

    def column(self, value: Value) -> int:
        """The column at which a value leaves its item."""
        return _column(value, self.span)


def place(flow: Flow) -> Plan:
    """Place the items of a flow."""
    return _Placing(flow).plan()


class _Placing:
    """The state of the placement of one flow."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._rail_of: dict[Item, str] = {}
        self._spines = {name: spine for name in flow.states if (spine := _spine(flow, name)) is not None}
        for name, spine in self._spines.items():
            for item in spine:
                self._rail_of.setdefault(item, name)
        self._readers: dict[Item, list[Item]] = {}
        for item in flow.items:
            for value in item.inputs:
                self._readers.setdefault(value.item, []).append(item)
        self._upstream = self._ancestors(list(self._rail_of))
        self._order = self._rail_order()
        self._row: dict[Item, int] = {}
        self._hanging: set[Item] = set()
        self._rail_row: dict[str, int] = {}
        self._span: dict[Item, tuple[int, int]] = {}
        self._taken: set[tuple[int, int]] = set()
        self._columns = 0

    def plan(self) -> Plan:
        self._find_rows()
        for name in self._order:
            for item in self._spines[name]:
                self._place_column(item)
        for value in self._flow.new.values():
            self._place_column(value.item)
        return Plan(self._columns, self._row, self._span, self._rail_row, self._rail_of)

    def _ancestors(self, items: list[Item]) -> set[Item]:
        ancestors: set[Item] = set()
        while items:
            item = items.pop()
            if item not in ancestors:
                ancestors.add(item)
                items += [value.item for value in item.inputs]
        return ancestors

    def _rail_order(self) -> list[str]:
        """The states with a rail, lowest first. The rail of a state is below those of the states that depend on it."""
        dependencies = {
            name: {self._rail_of[item] for item in self._ancestors(list(spine)) if item in self._rail_of} - {name}
            for name, spine in self._spines.items()
        }
        order: list[str] = []
        names = [name for name in self._flow.states if name in self._spines][::-1]
        while names:
            ready = [name for name in names if dependencies[name] <= set(order)] or names
            order.append(ready[0])
            names.remove(ready[0])
        # Of independent states, the first one in `Cell.state` has the highest rail.
        return order

    def _find_rows(self) -> None:
        tail = [item for item in self._flow.items if item not in self._upstream]
        for item in tail:
            self._place_row(item)
        self._hang(tail, 1)
        lowest = 0
        for name in self._order:
            spine = self._spines[name]
            side_inputs = [v.item for item in spine for v in item.inputs if not self._on_rail(v.item)]
            rows = [self._place_row(item) + 1 for item in side_inputs if not self._hangs(item)]
            self._hang([item for item in self._flow.items if item in self._upstream and item not in self._rail_of], 0)
            rows += [self._row[item] + 1 for item in side_inputs if item in self._row]
            readers = [reader for item in (*spine, self._flow.states[name]) for reader in self._readers.get(item, ())]
            rows += [self._row[reader] + 1 for reader in readers if reader in self._row and self._hangs(reader)]
            self._rail_row[name] = lowest = max([1, lowest + 1, *rows])
            for item in spine:
                if self._rail_of[item] == name:
                    self._row[item] = lowest
        self._clear_rails()

    def _clear_rails(self) -> None:
        """Move rows up, so that each rail has a row without other items."""
        occupied = {row for item, row in self._row.items() if item not in self._rail_of}
        rails = set(self._rail_row.values())
        self._row = {
            item: row + sum(rail in occupied for rail in rails if rail < row + (item in self._rail_of))
            for item, row in self._row.items()
        }
        self._rail_row = {
            name: row + sum(rail in occupied for rail in rails if rail <= row) for name, row in self._rail_row.items()
        }

    def _on_rail(self, item: Item) -> bool:
        return item.kind == "state" or item in self._rail_of

    def _is_below(self, item: Item) -> bool:
        """Whether an input is below its reader: it is not on a rail, or its rail has been placed."""
        return not self._on_rail(item) or self._rail_of.get(item) in self._rail_row

    def _hangs(self, item: Item) -> bool:
        """Whether an item hangs from rails: it reads only values from rails above it."""
        if self._on_rail(item) or item.kind in ("gate", "product") or not item.inputs:
            return False
        if item in self._row:
            return item in self._hanging
        inputs = [value.item for value in item.inputs]
        return all(self._hangs(i) or (self._on_rail(i) and not self._is_below(i)) for i in inputs)

    def _place_row(self, item: Item) -> int:
        """Place an item one row above the highest of the inputs that are below the item. Returns the row."""
        if item in self._row or self._hangs(item):
            return self._row.get(item, 0)
        below = [v.item for v in item.inputs if self._is_below(v.item) and not self._hangs(v.item)]
        row = 1 + max((self._place_row(i) for i in below), default=-1)
        self._row[item] = row if item.kind in ("gate", "product") else max(row, 1)
        return self._row[item]

    def _hang(self, items: list[Item], above: int) -> None:
        """Place items that hang from rails, `above` rows higher than their highest reader."""
        for item in reversed(items):
            readers = [r for r in self._readers.get(item, ()) if r in self._row and not self._on_rail(r)]
            if item not in self._row and self._hangs(item) and readers:
                self._hanging.add(item)
                self._row[item] = max(self._row[reader] for reader in readers) + above

    def _place_column(self, item: Item) -> None:
        """Place an item in a column, after all its inputs: inputs in high rows first, inputs on rails last."""
        if item in self._span or item.kind == "state":
            return
        inputs = [value.item for value in item.inputs]
        for each in sorted(inputs, key=self._placing_order):
            self._place_column(each)
        row = self._row.setdefault(item, 1)
        before = [_column(value, self._span) for value in item.inputs if value.item in self._span]
        if item in self._rail_of:
            spine = self._spines[self._rail_of[item]]
            k = spine.index(item)
            if k and spine[k - 1] in self._span:
                before.append(self._span[spine[k - 1]][1] + 1)
            column = max(before, default=self._columns)
        elif item.results > 1 and len(before) > 1 and self._is_free(row, min(before), max(before)):
            self._occupy(item, min(before), max(before), row)
            return
        elif item.kind in ("gate", "product") or all(map(self._on_rail, inputs)) or self._is_beside(item):
            column = self._columns
        else:
            column = max(before, default=self._columns)
        while not self._is_free(row, column, column):
            column += 1
        self._occupy(item, column, column, row)

    def _placing_order(self, item: Item) -> tuple[bool, bool, int]:
        """A sort key for the order in which the inputs of an item are placed."""
        waits = not item.inputs or any(value.item not in self._span for value in item.inputs)
        return self._on_rail(item) or item in self._hanging, waits, -self._row.get(item, 0)

    def _is_beside(self, item: Item) -> bool:
        """Whether an item must be next to its only input, because a wire runs straight up from the input to a rail."""
        inputs = [value.item for value in item.inputs]
        return len(inputs) == 1 and any(
            reader in self._rail_of and reader in self._span and self._span[reader][0] == self._span[inputs[0]][0]
            for reader in self._readers[inputs[0]]
        )

    def _is_free(self, row: int, first: int, last: int) -> bool:
        return all((column, row) not in self._taken for column in range(first, last + 1))

    def _occupy(self, item: Item, first: int, last: int, row: int) -> None:
        self._span[item] = first, last
        self._taken |= {(column, row) for column in range(first, last + 1)}
        self._columns = max(self._columns, last + 1)


def _column(value: Value, span: dict[Item, tuple[int, int]]) -> int:
    first, last = span[value.item]
    return first + value.port * (last - first) // max(value.item.results - 1, 1)


def _spine(flow: Flow, name: str) -> list[Item] | None:
    """The items of the spine of a state; None if no path of elementwise operations leads to its new value."""
    start, end = flow.states[name], flow.new[name].item
    if end is start:
        return []
    after: dict[Item, Item] = {}
    queue = deque([end])
    while queue:
        item = queue.popleft()
        if item is start:
            path = []
            while item is not end:
                item = after[item]
                path.append(item)
            return path
        if item.kind in ("operation", "function"):
            for value in item.inputs:
                if value.item not in after:
                    after[value.item] = item
                    queue.append(value.item)
    return None
