"""The diagram of a cell: its items and wires, in pixels."""

from collections.abc import Sequence
from html import escape
from itertools import accumulate

from glassgate.cell import Cell
from glassgate.glass.diagrams import svg
from glassgate.glass.diagrams.flow import Flow, Item, Value, flow
from glassgate.glass.diagrams.placing import Plan, place
from glassgate.glass.diagrams.routing import NoRoute, Point, Port, Router

TRACK, MARGIN, EDGE = 12.0, 46.0, 14.0
CIRCLE, GATE, LINE = 30.0, (50.0, 46.0), 18.0
LETTER = 7.4
"""The typical width of a letter."""
TAP = 11.0
"""The distance from the middle of a box at which wires from the two buses enter it."""


def draw_cell(cell: Cell, projected: bool = False) -> svg.Diagram:
    """The diagram of one step."""
    read = flow(cell, projected)
    plan = place(read)
    drawings: list[_Drawing] = []
    for tracks in (2, 3, 4, 6, 9, 14):
        if tracks > 4 and drawings:
            break
        drawing = _routed(cell, read, plan, tracks)
        if drawing is not None:
            drawings.append(drawing)
            if not drawing.crossings:
                break
    return min(drawings, key=lambda drawing: drawing.cost).picture()


def _routed(cell: Cell, read: Flow, plan: Plan, tracks: int) -> "_Drawing | None":
    """A drawing with all wires, or None. After a failed attempt, the wire without a route is routed first."""
    first: list[int] = []
    for _ in range(6):
        drawing = _Drawing(cell, read, plan, tracks)
        failed = drawing.route_wires(first)
        if failed is None:
            return drawing
        first = [failed, *(link for link in first if link != failed)]
    return None


def size_of(item: Item) -> tuple[float, float]:
    """Width and height in pixels."""
    lines = labels(item)
    wide = max(len(line) for line, _ in lines) * LETTER
    if item.kind in ("gate", "product"):
        return max(GATE[0], wide + 14), GATE[1]
    if len(lines) == 1 and len(lines[0][0]) <= 2:
        return CIRCLE, CIRCLE
    return max(CIRCLE, wide + 18), CIRCLE + LINE * (len(lines) - 1)


def labels(item: Item) -> list[tuple[str, str]]:
    """The lines of an item's label with their CSS classes."""
    named = item.name is not None and item.name.isidentifier()
    if item.kind in ("gate", "product"):
        return [(item.name or "", "name"), *((line, "small") for line in item.lines)]
    if named and item.lines[0].isalpha() and item.name != item.lines[0] and len(item.lines) == 1:
        return [(item.name or "", "name"), (item.lines[0], "small")]
    return [(line, "") for line in item.lines]


class _Drawing:
    def __init__(self, cell: Cell, read: Flow, plan: Plan, tracks: int) -> None:
        self._cell, self._flow, self._plan, self._tracks = cell, read, plan, tracks
        self._output = cell.state[0]
        self._left = max(MARGIN, 26 + LETTER * max(map(len, cell.state)))
        readers = [item for item in read.items if item.reads]
        self._shared = bool(readers) and all(item.reads == ("x", "h") for item in readers)
        self._make_grid()
        self._nets: dict[Value, int] = {}
        self._router = Router(self._xs, self._ys, self._low)
        self._wires: list[str] = []
        self._shown: set[str] = set()
        for item in read.items:
            x, y, width, height = self._area(item)
            self._router.block(x - width / 2 - 4, y - height / 2 - 4, x + width / 2 + 4, y + height / 2 + 4)

    # The grid: lines through the middles of columns and rows, and tracks between them.

    def _make_grid(self) -> None:
        plan, items = self._plan, self._flow.items
        rows = 1 + max([*plan.row.values(), *plan.rails.values()], default=0)
        wide, high = [CIRCLE] * max(plan.columns, 1), [CIRCLE] * rows
        for item in items:
            width, height = size_of(item)
            first, last = plan.span[item]
            if first == last:
                wide[first] = max(wide[first], width)
            high[plan.row[item]] = max(high[plan.row[item]], height)
        gap = TRACK * (self._tracks + 1)
        left = self._left + TRACK * 4
        starts = [left, *(left + s for s in accumulate(w + gap for w in wide))]
        self._columns = [start + w / 2 for start, w in zip(starts, wide, strict=False)]
        between = [start - TRACK * (k + 1) for start in starts[1:] for k in range(self._tracks)]
        right = starts[-1] - gap + TRACK * 3
        xs = {self._left, *(self._left + TRACK * k for k in (1, 2, 3)), *self._columns, *between, right}
        xs |= {x + d for x in self._columns for d in (-TAP, TAP)} | {right - TRACK, right + TRACK, right - 2 * TRACK}
        top = MARGIN / 2 + TRACK * 2
        tops = [top, *(top + s for s in accumulate(h + gap for h in reversed(high)))]
        self._rows = [t + h / 2 for t, h in zip(tops, reversed(high), strict=False)][::-1]
        ys = {*self._rows, *(t - TRACK * (k + 1) for t in tops[1:] for k in range(self._tracks))}
        ys |= {top - TRACK, top}
        under = tops[-1] - gap
        self._low = under + TRACK * 2
        self._bus = {"h": under + TRACK * 2, "x": under + TRACK * (2 if self._shared else 4)}
        ys |= {under + TRACK * k for k in range(1, 7)}
        self._bottom = under + TRACK * (4 if self._shared else 6)
        ys.add(self._bottom)
        self._right = right + TRACK
        self._xs, self._ys = sorted(xs), sorted(ys)
        self._entries = self._find_entries()

    def _at(self, x: float, y: float) -> Point:
        return self._xs.index(x), self._ys.index(y)

    def _area(self, item: Item) -> tuple[float, float, float, float]:
        """The middle and the size of an item."""
        first, last = self._plan.span[item]
        width, height = size_of(item)
        left, right = self._columns[first], self._columns[last]
        if last > first:
            width = max(width, right - left + GATE[0])
        return (left + right) / 2, self._rows[self._plan.row[item]], width, height

    def _port(self, item: Item, way: Point, cost: float, x: float | None = None) -> Port:
        """The port on one side of an item."""
        middle, y, width, height = self._area(item)
        x = middle if x is None else x
        if x not in self._xs:
            x = min(self._xs, key=lambda line: abs(line - middle))
        edge = (x, y + way[1] * height / 2) if way[1] else (middle + way[0] * width / 2, y)
        i, j = self._at(x, y)
        if way[0]:
            i = min(range(len(self._xs)), key=lambda k: abs(self._xs[k] - edge[0]))
        while self._router.is_blocked((i, j)):
            i, j = i + way[0], j + way[1]
        return Port((i, j), way, edge, cost)

    def _ports_out(self, value: Value) -> list[Port]:
        item = value.item
        if item.results > 1:
            return [self._port(item, (0, -1), 0, self._columns[self._plan.column(value)])]
        costs = {(0, -1): 0.0, (1, 0): 0.0, (0, 1): 20.0, (-1, 0): 80.0}
        return [self._port(item, way, cost) for way, cost in costs.items()]

    def _ports_in(self, item: Item, value: Value) -> list[Port]:
        first, last = self._plan.span[item]
        if last > first:
            return [self._port(item, (0, 1), 0, self._columns[k]) for k in range(first, last + 1)]
        costs = {(0, 1): 0.0, (-1, 0): 0.0, (0, -1): 4.0, (1, 0): 80.0}
        ports = [self._port(item, way, cost) for way, cost in costs.items()]
        if self._area(item)[2] > 2 * TAP + 10:
            middle = self._columns[first]
            ports += [self._port(item, (0, 1), 6.0, middle + d) for d in (-TAP, TAP)]
        return ports

    # Wires: buses and rails first, then short wires, then the others.

    def _net(self, value: Value) -> int:
        return self._nets.setdefault(value, len(self._nets))

    @property
    def cost(self) -> float:
        """The cost of the wires and of the area of the drawing."""
        return self._router.cost + self._right + self._bottom

    @property
    def crossings(self) -> int:
        """The number of crossings of wires."""
        return self._router.crossings

    def route_wires(self, first: Sequence[int]) -> int | None:
        """Route every wire, those in `first` before others. Returns the number of a wire without a route, or None."""
        for name, value in self._flow.new.items():
            self._router.reserve(self._net(value), (len(self._xs) - 2, self._ys.index(self._entry(name))))
        for name, item in self._flow.states.items():
            self._router.reserve(self._net(Value(item)), (1, self._ys.index(self._entry(name))))
        self._lay_buses()
        links: list[tuple[Value, list[Port], Item | None]] = [
            (value, self._ports_in(item, value), item) for item in self._flow.items for value in item.inputs
        ]
        links += [(value, [self._exit(name)], None) for name, value in self._flow.new.items()]
        order = sorted(range(len(links)), key=lambda k: self._routing_order(links[k]))
        for k in [*first, *(k for k in order if k not in first)]:
            try:
                self._connect(*links[k])
            except NoRoute:
                return k
        return None

    def _routing_order(self, link: tuple[Value, list[Port], Item | None]) -> tuple[bool, bool, float]:
        """A sort key of wires: straight along a rail, then straight up, then by length."""
        value, ends, item = link
        (x, y), (u, v) = self._start(value), ends[0].edge if item is None else self._area(item)[:2]
        along = value.item.kind == "state" or self._plan.row[value.item] in self._plan.rails.values()
        return not (along and abs(y - v) < 1), abs(x - u) > 1, abs(x - u) + abs(y - v)

    def _start(self, value: Value) -> tuple[float, float]:
        if value.item.kind == "state":
            return self._left, self._entry(value.item.lines[0])
        x, y = self._area(value.item)[:2]
        return (self._columns[self._plan.column(value)] if value.item.results > 1 else x), y

    def _entry(self, state: str) -> float:
        """The height at which a state enters and leaves."""
        return self._entries[state]

    def _find_entries(self) -> dict[str, float]:
        """The height of each state: its rail, the lower edge for an output without a rail, or the row of its reader."""
        entries = {state: self._rows[row] for state, row in self._plan.rails.items()}
        if self._output not in entries:
            entries[self._output] = self._bus["h"]
        for state, before in self._flow.states.items():
            if state not in entries:
                users = [item for item in self._flow.items if before in [v.item for v in item.inputs]]
                near = self._rows[self._plan.row[users[0]]] if users else self._ys[0]
                free = [y for y in self._ys if y < self._bus["h"] and y not in entries.values()]
                entries[state] = min(free, key=lambda y: abs(y - near))
        return entries

    def _lay_buses(self) -> None:
        readers = {half: [item for item in self._flow.items if half in item.reads] for half in "xh"}
        inlet = self._left + 2 * TRACK
        self._bus_net = {"x": self._net(Value(Item("state", ("x",), "x", "x"))), "h": -1}
        h = Value(self._flow.states[self._output])
        if readers["h"]:
            self._bus_net["h"] = self._bus_net["x"] if self._shared else self._net(h)
            entry, bus = self._entry(self._output), self._bus["h"]
            down = self._left + TRACK
            way = [(self._left, entry)] if entry == bus else [(self._left, entry), (down, entry), (down, bus)]
            end = inlet if self._shared else self._last_tap(readers["h"], -TAP)
            self._trunk("state", f"{self._output}_prev", self._net(h), [*way, (end, bus)])
        if readers["x"]:
            offset = 0.0 if self._shared else TAP
            last, bus = self._last_tap(readers["x"], offset), self._bus["x"]
            way = [(inlet, self._bottom), (inlet, bus), (last, bus)]
            if self._shared:
                self._trunk("input", "x", self._bus_net["x"], way[:2])
                self._trunk("both", "x", self._bus_net["x"], way[1:], svg.dot(*way[1]))
            else:
                self._trunk("input", "x", self._bus_net["x"], way)
        for half, offset in (("x", TAP), ("h", -TAP)):
            if half == "h" and self._shared:
                continue
            for item in sorted(readers[half], key=lambda item: self._plan.span[item]):
                only = item.reads != ("x", "h") or self._shared
                x = self._columns[self._plan.span[item][0]] + (0 if only else offset)
                kind, name = ("input", "x") if half == "x" else ("state", f"{self._output}_prev")
                ends = [self._port(item, (0, 1), 0, x)]
                self._lay(self._bus_net[half], [], ends, "both" if self._shared else kind, name)

    def _last_tap(self, items: Sequence[Item], offset: float) -> float:
        last = max(items, key=lambda item: self._plan.span[item])
        both = last.reads == ("x", "h") and not self._shared
        return self._columns[self._plan.span[last][0]] + (offset if both else 0)

    def _trunk(self, kind: str, name: str, net: int, way: list[svg.Place], join: str = "") -> None:
        self._router.lay(net, [self._at(x, y) for x, y in way])
        self._wires.append(self._wire(kind, name, svg.wire(way) + join, way))

    def _connect(self, value: Value, ends: Sequence[Port], item: Item | None) -> None:
        if value.item.kind == "state":
            starts = [Port(self._at(self._left, self._entry(value.item.lines[0])), (1, 0), self._start(value))]
        else:
            starts = self._ports_out(value)
        rail = self._plan.rail_of.get(value.item)
        along = rail is not None and item is not None and self._plan.rail_of.get(item) == rail
        carries = value.item.kind == "state" or along or value in self._flow.new.values()
        self._lay(self._net(value), starts, ends, "state" if carries else "", name_of(value, self._flow))

    def _lay(self, net: int, starts: Sequence[Port], ends: Sequence[Port], kind: str, name: str) -> None:
        points, start, end = self._router.route(net, starts, ends)
        way: list[svg.Place] = [(self._xs[i], self._ys[j]) for i, j in points]
        body = svg.dot(*way[0]) if start is None else ""
        way = [*([start.edge] if start else []), *way, end.edge]
        self._wires.append(self._wire(kind, name, svg.wire(way) + svg.head(way) + body, way))

    def _exit(self, name: str) -> Port:
        y = self._entry(name)
        return Port(self._at(self._right, y), (-1, 0), (self._right + EDGE, y))

    def _wire(self, kind: str, name: str, body: str, way: Sequence[svg.Place]) -> str:
        """A wire. The first wire of each value has an empty text for the value."""
        classes = f"wire {kind}".strip()
        value = svg.value_beside(way) if name not in self._shown else ""
        self._shown.add(name)
        return f'<g class="{classes}" data-name="{escape(name)}">{body}{value}</g>'

    # The complete picture.

    def picture(self) -> svg.Diagram:
        """The diagram with its frame, wires and items."""
        cell, name = self._cell, type(self._cell).__name__
        width, height = self._right + self._left, self._bottom + MARGIN - 6
        inside = self._right - self._left + EDGE
        tall = self._bottom - MARGIN / 2 + EDGE - 8
        frame = svg.box(self._left + inside / 2 - EDGE / 2 + 7, MARGIN / 2 + tall / 2, inside, tall, 16)
        body = [frame.replace("<rect", '<rect class="frame"')]
        body += self._wires
        in_order = sorted(self._flow.items, key=lambda item: (self._plan.span[item], self._plan.row[item]))
        body += [self._item(item) for item in in_order]
        for state in cell.state:
            y = self._entry(state) + 5
            body.append(svg.text(self._left / 2 - 2, y, state_name(state, "t−1"), "name state-name"))
            body.append(svg.text(width - self._left / 2 + 8, y, state_name(state, "t"), "name state-name"))
        body.append(svg.text(self._left + 2 * TRACK, height - 8, state_name("x", "t"), "name input-name"))
        equations = "; ".join(item.equation for item in self._flow.items if item.name)
        return svg.Diagram(svg.document(width, height, f"One step of {name}", equations, body))

    def _item(self, item: Item) -> str:
        x, y, width, height = self._area(item)
        radius = 6 if item.kind in ("gate", "product") else 9 if item.kind == "function" else min(height, 30) / 2
        lines = labels(item)
        body = [f"<title>{escape(item.equation)}</title>", svg.box(x, y, width, height, radius)]
        for k, (line, classes) in enumerate(lines):
            body.append(svg.text(x, y + 5 + (k - (len(lines) - 1) / 2) * LINE, escape(line), classes))
        name = name_of(Value(item), self._flow)
        return f'<g class="{item.kind}" data-name="{escape(name)}">{"".join(body)}</g>'


def name_of(value: Value, read: Flow) -> str:
    """The name of the value on a wire: the author's name, or the number of the item that computes it."""
    item = value.item
    if item.kind == "state":
        return f"{item.lines[0]}_prev"
    for state, new in read.new.items():
        if new == value:
            return state
    name = item.nodes[value.port].name if value.port < len(item.nodes) else item.name
    return name or f"{read.items.index(item)}.{value.port}"


def state_name(name: str, when: str) -> str:
    """A name with its time as a subscript."""
    return f'{escape(name)}<tspan class="sub" dy="3">{when}</tspan>'
