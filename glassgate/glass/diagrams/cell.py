"""Draws the diagram of a cell: sizes the boxes of its items, converts grid positions to pixels, and routes wires."""

from collections.abc import Sequence
from html import escape
from itertools import accumulate

from glassgate.cell import Cell
from glassgate.glass.diagrams import svg
from glassgate.glass.diagrams.flow import Flow, Item, Value, axes_of, flow
from glassgate.glass.diagrams.placing import Plan, place
from glassgate.glass.diagrams.routing import NoRoute, Point, Port, Router
from glassgate.glass.languages import say

# Lengths are in pixels.
SPACING = 12.0
"""The distance between adjacent grid lines on which wires run in parallel."""
MARGIN = 46.0
"""The minimum width of the border outside the frame, for the names of states."""
ARROW = 14.0
"""The length of the arrows that leave the frame with the new states."""
CIRCLE = 30.0
"""The diameter of a circle, and the minimum width and height of all boxes."""
GATE_SIZE = 50.0, 46.0
"""The minimum width and the height of a gate."""
LINE_HEIGHT = 18.0
LETTER_WIDTH = 7.4
"""The width of a typical letter of a label."""
BUS_OFFSET = 11.0
"""If a box reads both x and h, the wire of x enters this far right of the middle, and the wire of h this far left."""

UP, DOWN, LEFT, RIGHT = (0, -1), (0, 1), (-1, 0), (1, 0)


def draw_cell(cell: Cell, projected: bool = False) -> svg.Diagram:
    """Draw one step of a cell.

    Tracks are the grid lines between two columns or rows. More tracks need fewer crossings and more area. The function
    tries a few numbers of tracks and returns the cheapest drawing.

    Args:
        cell: the cell.
        projected: whether the output is projected to a smaller size before the next step reads it.
    """
    cell_flow = flow(cell, projected)
    plan = place(cell_flow)
    drawings: list[_Drawing] = []
    for tracks in (2, 3, 4, 6, 9, 14):
        if tracks > 4 and drawings:  # more tracks are only for cells that need them to connect all wires
            break
        drawing = _route(cell, cell_flow, plan, tracks)
        if drawing is not None:
            drawings.append(drawing)
            if not drawing.crossings:
                break
    return min(drawings, key=lambda drawing: drawing.cost).picture()


def _route(cell: Cell, cell_flow: Flow, plan: Plan, tracks: int) -> "_Drawing | None":
    """Return a drawing with all wires, or None. After a failed attempt, the wire without a route is routed first."""
    priority: list[int] = []
    for _ in range(6):
        drawing = _Drawing(cell, cell_flow, plan, tracks)
        failed = drawing.route_wires(priority)
        if failed is None:
            return drawing
        priority = [failed, *(link for link in priority if link != failed)]
    return None


def box_size(item: Item) -> tuple[float, float]:
    """Return the width and the height of an item's box, so that its label fits.

    Gates and products have the height of a gate. Labels of one or two characters are in a circle.
    """
    lines = label_lines(item)
    label_width = max(len(line) for line, _ in lines) * LETTER_WIDTH
    if item.kind in ("gate", "product"):
        return max(GATE_SIZE[0], label_width + 14), GATE_SIZE[1]
    if len(lines) == 1 and len(lines[0][0]) <= 2:
        return CIRCLE, CIRCLE
    return max(CIRCLE, label_width + 18), CIRCLE + LINE_HEIGHT * (len(lines) - 1)


def label_lines(item: Item) -> list[tuple[str, str]]:
    """Return the lines of an item's label, each with its CSS class.

    The label of a gate or of a function begins with the name of the variable that receives the result.
    """
    if item.kind in ("gate", "product"):
        return [(item.name or "", "name"), *((line, "small") for line in item.lines)]
    is_named = item.name is not None and item.name.isidentifier() and item.name != item.lines[0]
    if is_named and len(item.lines) == 1 and item.lines[0].isalpha():
        return [(item.name or "", "name"), (item.lines[0], "small")]
    return [(line, "") for line in item.lines]


class _Drawing:
    """The drawing of a cell with a given number of tracks.

    The frame contains the items. States enter it on the left and leave it on the right. A rail is the row of the items
    that update a state. Two horizontal buses below the items carry the input x and the previous output h to the items
    that multiply them by a matrix. If all of these items read both, x and h share one bus.
    """

    def __init__(self, cell: Cell, cell_flow: Flow, plan: Plan, tracks: int) -> None:
        self._cell, self._flow, self._plan, self._tracks = cell, cell_flow, plan, tracks
        self._output = cell.state[0]
        longest = max(map(len, (*cell.state, *cell_flow.axes.values())))
        self._left = max(MARGIN, 26 + LETTER_WIDTH * longest)
        bus_readers = [item for item in cell_flow.items if item.reads]
        self._one_bus = bool(bus_readers) and all(item.reads == ("x", "h") for item in bus_readers)
        self._make_grid()
        self._net_numbers: dict[Value, int] = {}
        self._router = Router(self._xs, self._ys, self._items_bottom)
        self._wires: list[str] = []
        self._names_with_text: set[str] = set()
        for item in cell_flow.items:
            x, y, width, height = self._box(item)
            self._router.block(x - width / 2 - 4, y - height / 2 - 4, x + width / 2 + 4, y + height / 2 + 4)

    # The grid: lines through the middles of columns and rows, and tracks between them.

    def _make_grid(self) -> None:
        self._make_columns()
        self._make_rows()
        self._state_heights = self._find_state_heights()

    def _make_columns(self) -> None:
        widths = [CIRCLE] * max(self._plan.columns, 1)
        for item in self._flow.items:
            first, last = self._plan.span[item]
            if first == last:
                widths[first] = max(widths[first], box_size(item)[0])
        gap = SPACING * (self._tracks + 1)
        left = self._left + SPACING * 4
        starts = [left, *(left + x for x in accumulate(width + gap for width in widths))]
        self._columns = [start + width / 2 for start, width in zip(starts, widths, strict=False)]
        right = starts[-1] - gap + SPACING * 3
        xs = {*self._columns, *(x + offset for x in self._columns for offset in (-BUS_OFFSET, BUS_OFFSET))}
        xs |= {start - SPACING * (k + 1) for start in starts[1:] for k in range(self._tracks)}
        xs |= {self._left + SPACING * k for k in range(4)} | {right + SPACING * k for k in (-2, -1, 0, 1)}
        self._right = right + SPACING
        self._xs = sorted(xs)

    def _make_rows(self) -> None:
        """Place the rows, with row 0 at the bottom, and the buses below them."""
        plan = self._plan
        heights = [CIRCLE] * (1 + max([*plan.row.values(), *plan.rails.values()], default=0))
        for item in self._flow.items:
            heights[plan.row[item]] = max(heights[plan.row[item]], box_size(item)[1])
        gap = SPACING * (self._tracks + 1)
        top = MARGIN / 2 + SPACING * 2
        from_top = heights[::-1]
        starts = [top, *(top + y for y in accumulate(height + gap for height in from_top))]
        self._rows = [start + height / 2 for start, height in zip(starts, from_top, strict=False)][::-1]
        bottom = starts[-1] - gap
        self._items_bottom = bottom + SPACING * 2
        self._bus = {"h": bottom + SPACING * 2, "x": bottom + SPACING * (2 if self._one_bus else 4)}
        self._bottom = bottom + SPACING * (4 if self._one_bus else 6)
        ys = {*self._rows, *(start - SPACING * (k + 1) for start in starts[1:] for k in range(self._tracks))}
        ys |= {top - SPACING, top, self._bottom} | {bottom + SPACING * k for k in range(1, 7)}
        self._ys = sorted(ys)

    def _point(self, x: float, y: float) -> Point:
        """The grid point at these coordinates."""
        return self._xs.index(x), self._ys.index(y)

    def _box(self, item: Item) -> tuple[float, float, float, float]:
        """The middle of an item's box, its width and its height."""
        first, last = self._plan.span[item]
        width, height = box_size(item)
        left, right = self._columns[first], self._columns[last]
        if last > first:
            width = max(width, right - left + GATE_SIZE[0])
        return (left + right) / 2, self._rows[self._plan.row[item]], width, height

    def _port(self, item: Item, side: Point, cost: float, x: float | None = None) -> Port:
        """The port on one side of an item: at `x` on the upper or lower side, or in the middle of the side."""
        middle, y, width, height = self._box(item)
        x = middle if x is None else x
        if x not in self._xs:
            x = min(self._xs, key=lambda line: abs(line - middle))
        edge = (x, y + side[1] * height / 2) if side[1] else (middle + side[0] * width / 2, y)
        i, j = self._point(x, y)
        if side[0]:
            i = min(range(len(self._xs)), key=lambda k: abs(self._xs[k] - edge[0]))
        while self._router.is_blocked((i, j)):
            i, j = i + side[0], j + side[1]
        return Port((i, j), side, edge, cost)

    def _output_ports(self, value: Value) -> list[Port]:
        """The ports at which a value may leave its item. Costs make wires run upward and to the right."""
        item = value.item
        if item.results > 1:
            return [self._port(item, UP, 0, self._columns[self._plan.column(value)])]
        costs = {UP: 0.0, RIGHT: 0.0, DOWN: 20.0, LEFT: 80.0}
        return [self._port(item, side, cost) for side, cost in costs.items()]

    def _input_ports(self, item: Item) -> list[Port]:
        """The ports at which a value may enter an item. Costs make wires enter from below or from the left."""
        first, last = self._plan.span[item]
        if last > first:
            return [self._port(item, DOWN, 0, self._columns[k]) for k in range(first, last + 1)]
        costs = {DOWN: 0.0, LEFT: 0.0, UP: 4.0, RIGHT: 80.0}
        ports = [self._port(item, side, cost) for side, cost in costs.items()]
        if self._box(item)[2] > 2 * BUS_OFFSET + 10:
            middle = self._columns[first]
            ports += [self._port(item, DOWN, 6.0, middle + offset) for offset in (-BUS_OFFSET, BUS_OFFSET)]
        return ports

    # Wires: buses and rails first, then vertical wires, then the others.

    def _net(self, value: Value) -> int:
        """The number of the net of a value. A net is all wires with the same source."""
        return self._net_numbers.setdefault(value, len(self._net_numbers))

    @property
    def cost(self) -> float:
        """The cost of the wires and of the size of the drawing."""
        return self._router.cost + self._right + self._bottom

    @property
    def crossings(self) -> int:
        """The number of crossings of wires."""
        return self._router.crossings

    def route_wires(self, priority: Sequence[int]) -> int | None:
        """Route every wire, those in `priority` first. Returns the number of a wire without a route, or None."""
        for name, value in self._flow.new.items():
            self._router.reserve(self._net(value), (len(self._xs) - 2, self._ys.index(self._state_heights[name])))
        for name, item in self._flow.states.items():
            self._router.reserve(self._net(Value(item)), (1, self._ys.index(self._state_heights[name])))
        self._lay_buses()
        links: list[tuple[Value, list[Port], Item | None]] = [
            (value, self._input_ports(item), item) for item in self._flow.items for value in item.inputs
        ]
        links += [(value, [self._exit(name)], None) for name, value in self._flow.new.items()]
        order = sorted(range(len(links)), key=lambda k: self._routing_order(links[k]))
        for k in [*priority, *(k for k in order if k not in priority)]:
            try:
                self._connect(*links[k])
            except NoRoute:
                return k
        return None

    def _routing_order(self, link: tuple[Value, list[Port], Item | None]) -> tuple[bool, bool, float]:
        """The sort key of a wire: straight wires along a rail, vertical wires, others; each kind by length."""
        value, ends, item = link
        (x, y), (end_x, end_y) = self._start(value), ends[0].edge if item is None else self._box(item)[:2]
        on_rail = value.item.kind == "state" or self._plan.row[value.item] in self._plan.rails.values()
        along_rail = on_rail and abs(y - end_y) < 1
        return not along_rail, abs(x - end_x) > 1, abs(x - end_x) + abs(y - end_y)

    def _start(self, value: Value) -> tuple[float, float]:
        """The coordinates from which a value comes: the left edge for a state, otherwise its item."""
        if value.item.kind == "state":
            return self._left, self._state_heights[value.item.lines[0]]
        x, y = self._box(value.item)[:2]
        return (self._columns[self._plan.column(value)] if value.item.results > 1 else x), y

    def _find_state_heights(self) -> dict[str, float]:
        """The height at which each state enters and leaves the frame.

        It is the height of the state's rail. Without a rail, the output is at the height of its bus, and any other
        state is on the free line closest to the first item that reads it.
        """
        heights = {state: self._rows[row] for state, row in self._plan.rails.items()}
        if self._output not in heights:
            heights[self._output] = self._bus["h"]
        for state, before in self._flow.states.items():
            if state not in heights:
                readers = [item for item in self._flow.items if before in [v.item for v in item.inputs]]
                target = self._rows[self._plan.row[readers[0]]] if readers else self._ys[0]
                free = [y for y in self._ys if y < self._bus["h"] and y not in heights.values()]
                heights[state] = min(free, key=lambda y: abs(y - target))
        return heights

    def _lay_buses(self) -> None:
        """Lay the wires of x and of the previous output h: from the frame along a bus to each item that reads them."""
        readers = {source: [item for item in self._flow.items if source in item.reads] for source in "xh"}
        joint_x = self._left + 2 * SPACING  # where x, from below, meets the bus
        nets = {"x": self._net(Value(Item("state", ("x",), "x", "x"))), "h": -1}
        h, h_name = Value(self._flow.states[self._output]), f"{self._output}_prev"
        if readers["h"]:
            nets["h"] = nets["x"] if self._one_bus else self._net(h)
            entry, bus, down_x = self._state_heights[self._output], self._bus["h"], self._left + SPACING
            path = [(self._left, entry)] if entry == bus else [(self._left, entry), (down_x, entry), (down_x, bus)]
            end = joint_x if self._one_bus else self._last_branch(readers["h"], -BUS_OFFSET)
            self._lay_fixed("state", h_name, self._net(h), [*path, (end, bus)])
        if readers["x"]:
            bus = self._bus["x"]
            end = self._last_branch(readers["x"], 0.0 if self._one_bus else BUS_OFFSET)
            path = [(joint_x, self._bottom), (joint_x, bus), (end, bus)]
            if self._one_bus:
                self._lay_fixed("input", "x", nets["x"], path[:2])
                self._lay_fixed("both", "x", nets["x"], path[1:], svg.dot(*path[1]))
            else:
                self._lay_fixed("input", "x", nets["x"], path)
        for source, kind, name, offset in (("x", "input", "x", BUS_OFFSET), ("h", "state", h_name, -BUS_OFFSET)):
            if source == "h" and self._one_bus:
                continue
            for item in sorted(readers[source], key=lambda item: self._plan.span[item]):
                reads_two_buses = item.reads == ("x", "h") and not self._one_bus
                x = self._columns[self._plan.span[item][0]] + (offset if reads_two_buses else 0)
                self._lay(nets[source], [], [self._port(item, DOWN, 0, x)], "both" if self._one_bus else kind, name)

    def _last_branch(self, items: Sequence[Item], offset: float) -> float:
        """The x coordinate at which the last wire branches off a bus to one of these items."""
        last = max(items, key=lambda item: self._plan.span[item])
        reads_two_buses = last.reads == ("x", "h") and not self._one_bus
        return self._columns[self._plan.span[last][0]] + (offset if reads_two_buses else 0)

    def _lay_fixed(self, kind: str, name: str, net: int, path: list[svg.Coordinates], dot: str = "") -> None:
        """Add a wire with a given path, without an arrow; `dot` is drawn on it."""
        self._router.lay(net, [self._point(x, y) for x, y in path])
        self._wires.append(self._wire(kind, name, svg.wire(path) + dot, path))

    def _connect(self, value: Value, ends: Sequence[Port], item: Item | None) -> None:
        """Route a wire from a value to an item, or to the right edge of the frame if `item` is None."""
        if value.item.kind == "state":
            point = self._point(self._left, self._state_heights[value.item.lines[0]])
            starts = [Port(point, RIGHT, self._start(value))]
        else:
            starts = self._output_ports(value)
        rail = self._plan.rail_of.get(value.item)
        on_one_rail = rail is not None and item is not None and self._plan.rail_of.get(item) == rail
        is_state = value.item.kind == "state" or on_one_rail or value in self._flow.new.values()
        name, kind = self._flow.name_of(value), "state" if is_state else ""
        nodes = value.item.nodes
        axes = axes_of(nodes[value.port]) if value.port < len(nodes) else ""
        self._lay(self._net(value), starts, ends, kind, name, f"{name} ({axes})" if axes else "")

    def _lay(
        self, net: int, starts: Sequence[Port], ends: Sequence[Port], kind: str, name: str, title: str = ""
    ) -> None:
        """Route a wire with an arrow to one of the ends. It branches off an earlier wire of the net, if any."""
        points, start, end = self._router.route(net, starts, ends)
        path: list[svg.Coordinates] = [(self._xs[i], self._ys[j]) for i, j in points]
        dot = svg.dot(*path[0]) if start is None else ""
        path = [*([start.edge] if start else []), *path, end.edge]
        body = f"<title>{escape(title)}</title>" if title else ""
        self._wires.append(self._wire(kind, name, body + svg.wire(path) + svg.head(path) + dot, path))

    def _exit(self, name: str) -> Port:
        """The port at which a new state leaves the frame."""
        y = self._state_heights[name]
        return Port(self._point(self._right, y), LEFT, (self._right + ARROW, y))

    def _wire(self, kind: str, name: str, body: str, path: Sequence[svg.Coordinates]) -> str:
        """A wire as SVG. The first wire of each value has an empty text element, into which a page writes the value."""
        classes = f"wire {kind}".strip()
        text = svg.value_beside(path) if name not in self._names_with_text else ""
        self._names_with_text.add(name)
        return f'<g class="{classes}" data-name="{escape(name)}">{body}{text}</g>'

    # The complete picture.

    def picture(self) -> svg.Diagram:
        """Return the diagram with its frame, wires, items and the names of states and input."""
        name = type(self._cell).__name__
        width, height = self._right + self._left, self._bottom + MARGIN - 6
        frame_width = self._right - self._left + ARROW
        frame_height = self._bottom - MARGIN / 2 + ARROW - 8
        frame_x, frame_y = self._left + frame_width / 2 - ARROW / 2 + 7, MARGIN / 2 + frame_height / 2
        frame = svg.box(frame_x, frame_y, frame_width, frame_height, 16)
        body = [frame.replace("<rect", '<rect class="frame"')]
        body += self._wires
        from_left = sorted(self._flow.items, key=lambda item: (self._plan.span[item], self._plan.row[item]))
        body += [self._item(item) for item in from_left]
        for state in self._cell.state:
            y = self._state_heights[state] + 5
            body.append(svg.text(self._left / 2 - 2, y, svg.state_name(state, "t−1"), "name state-name"))
            body.append(svg.text(width - self._left / 2 + 8, y, svg.state_name(state, "t"), "name state-name"))
            if axes := self._flow.axes.get(state):
                for x in (self._left / 2 - 2, width - self._left / 2 + 8):
                    body.append(svg.text(x, y + LINE_HEIGHT, escape(axes), "small"))
        body.append(svg.text(self._left + 2 * SPACING, height - 8, svg.state_name("x", "t"), "name input-name"))
        equations = "; ".join(item.equation for item in self._flow.items if item.name)
        return svg.Diagram(svg.document(width, height, say("diagram.cell", name=name), equations, body))

    def _item(self, item: Item) -> str:
        """An item as SVG: its box, its label, and its equation as the title."""
        x, y, width, height = self._box(item)
        radius = 6 if item.kind in ("gate", "product") else 9 if item.kind == "function" else min(height, 30) / 2
        lines = label_lines(item)
        body = [f"<title>{escape(item.equation)}</title>", svg.box(x, y, width, height, radius)]
        for k, (line, classes) in enumerate(lines):
            body.append(svg.text(x, y + 5 + (k - (len(lines) - 1) / 2) * LINE_HEIGHT, escape(line), classes))
        name = self._flow.name_of(Value(item))
        return f'<g class="{item.kind}" data-name="{escape(name)}">{"".join(body)}</g>'
