"""Routes wires along the cheapest paths through a grid: short and straight, with few crossings."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

BEND, CROSSING = 30.0, 60.0
"""The costs of a bend and of a crossing, in pixels of path length."""

Point = tuple[int, int]
"""A point of the grid, as the indices of its vertical and its horizontal line. Or a direction, such as (1, 0)."""


class Port(NamedTuple):
    """A point at the edge of an item where wires begin or end.

    Attributes:
        at: the nearest free grid point.
        away: the direction away from the item.
        edge: the coordinates at the edge of the item, in pixels.
        cost: the cost of a wire that uses this port.
    """

    at: Point
    away: Point
    edge: tuple[float, float]
    cost: float = 0.0


class NoRoute(Exception):
    """The grid has too few lines for all wires."""


class Router:
    """Routes wires on a grid, one after the other.

    A net is the set of wires with the same source. Wires of one net may share a path.

    Args:
        xs, ys: the coordinates of the lines in pixels, in order.
        expensive_below: below this height, horizontal wires cost three times as much.

    Attributes:
        cost: the cost of all wires so far.
        crossings: the number of crossings so far.
    """

    def __init__(self, xs: Sequence[float], ys: Sequence[float], expensive_below: float) -> None:
        self._xs, self._ys, self._expensive_below, self.cost, self.crossings = xs, ys, expensive_below, 0.0, 0
        self._blocked: set[Point] = set()
        # The net of the horizontal and of the vertical wire through each point.
        self._horizontal: dict[Point, int] = {}
        self._vertical: dict[Point, int] = {}
        # The nets whose wires turn or end at each point.
        self._turns: dict[Point, set[int]] = {}
        # The points of each net, in the order in which wires reached them.
        self._trees: dict[int, dict[Point, None]] = {}

    def block(self, left: float, top: float, right: float, bottom: float) -> None:
        """Keep wires out of a rectangle."""
        for i, x in enumerate(self._xs):
            for j, y in enumerate(self._ys):
                if left <= x <= right and top <= y <= bottom:
                    self._blocked.add((i, j))

    def reserve(self, net: int, at: Point) -> None:
        """Reserve a point for a horizontal wire of a net. Other wires may only cross it vertically."""
        self._horizontal.setdefault(at, net)

    def is_blocked(self, at: Point) -> bool:
        """Whether a point is in a rectangle that wires must avoid."""
        return at in self._blocked

    def lay(self, net: int, path: Sequence[Point]) -> None:
        """Add a wire that connects the points of a path by straight lines."""
        tree = self._trees.setdefault(net, {})
        full = [path[0]]
        for (a, b), (c, d) in pairwise(path):
            step = (c > a) - (c < a), (d > b) - (d < b)
            while full[-1] != (c, d):
                full.append((full[-1][0] + step[0], full[-1][1] + step[1]))
        for k, point in enumerate(full):
            tree[point] = None
            self.crossings += not self._may_turn(point, net)
            before, after = full[max(k - 1, 0)], full[min(k + 1, len(full) - 1)]
            if before[0] != point[0] or after[0] != point[0]:
                self._horizontal.setdefault(point, net)
            if before[1] != point[1] or after[1] != point[1]:
                self._vertical.setdefault(point, net)
            if k in (0, len(full) - 1) or (before[0] != after[0] and before[1] != after[1]):
                self._turns.setdefault(point, set()).add(net)

    def route(self, net: int, starts: Iterable[Port], ends: Iterable[Port]) -> tuple[list[Point], Port | None, Port]:
        """Find the cheapest path of a net to one of the ends, and add it as a wire.

        Args:
            net: the number of the net.
            starts: the ports at which a new net may start. An existing net branches off one of its wires.
            ends: the ports at which the wire may end.

        Returns:
            The path, its start (None for a branch) and its end.

        Raises:
            NoRoute: there is no path.
        """
        tree = self._trees.get(net, {})
        heap: list[tuple[float, int, float, Point, Point]] = []
        goals = {port.at: port for port in ends if port.at not in self._blocked}
        targets = [(self._xs[i], self._ys[j]) for i, j in goals]
        cost: dict[tuple[Point, Point], float] = {}
        previous: dict[tuple[Point, Point], tuple[Point, Point] | Port | None] = {}
        count = 0

        def remaining_cost(point: Point) -> float:
            """A lower bound of the remaining cost."""
            x, y = self._xs[point[0]], self._ys[point[1]]
            return min((abs(x - u) + abs(y - v) for u, v in targets), default=0.0)

        def visit(total: float, point: Point, heading: Point, origin: tuple[Point, Point] | Port | None) -> None:
            nonlocal count
            if total < cost.get((point, heading), float("inf")):
                cost[point, heading], previous[point, heading] = total, origin
                count += 1
                heappush(heap, (total + remaining_cost(point), count, total, point, heading))

        for point in filter(lambda point: self._may_turn(point, net), tree):
            for heading in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                visit(8.0, point, heading, None)
        if not tree:
            for port in starts:
                if self._is_free(port.at, port.away, net, turning=False):
                    visit(port.cost, port.at, port.away, port)
        best: tuple[float, tuple[Point, Point], Port] | None = None
        while heap:
            least, _, total, point, heading = heappop(heap)
            if best is not None and least >= best[0]:
                break
            if total > cost[point, heading]:
                continue
            if point in goals:
                port = goals[point]
                into = (-port.away[0], -port.away[1])
                bends = heading != into
                if (-heading[0], -heading[1]) != into and self._is_free(point, into, net, turning=bends):
                    path_cost = total + port.cost + BEND * bends
                    if best is None or path_cost < best[0]:
                        best = path_cost, (point, heading), port
            for after, next_heading, move_cost in self._moves(net, point, heading):
                visit(total + move_cost, after, next_heading, (point, heading))
        if best is None:
            raise NoRoute
        path_cost, last, end = best
        self.cost += path_cost
        points: list[Point] = []
        current: tuple[Point, Point] | Port | None = last
        while isinstance(current, tuple) and not isinstance(current, Port):
            points.append(current[0])
            current = previous[current]
        points.reverse()
        self.lay(net, [*points, points[-1]])
        start = current if isinstance(current, Port) else None
        self._mark_end(net, points[-1], end.away)
        if start is not None:
            self._mark_end(net, points[0], start.away)
        return points, start, end

    def _moves(self, net: int, point: Point, heading: Point) -> Iterator[tuple[Point, Point, float]]:
        """Yield the next points of a path straight ahead and to both sides, each with its direction and its cost."""
        for direction in (heading, (heading[1], heading[0]), (-heading[1], -heading[0])):
            bends = direction != heading
            if bends and not self._may_turn(point, net):
                continue
            after = point[0] + direction[0], point[1] + direction[1]
            if not (0 <= after[0] < len(self._xs) and 0 <= after[1] < len(self._ys)) or after in self._blocked:
                continue
            if direction[0] == 0 and point[0] in (0, len(self._xs) - 1):
                continue  # states enter and leave at the sides
            if not all(self._is_free(each, direction, net, turning=False) for each in (point, after)):
                continue
            length = abs(self._xs[after[0]] - self._xs[point[0]]) + abs(self._ys[after[1]] - self._ys[point[1]])
            length *= 3 if direction[1] == 0 and self._ys[point[1]] > self._expensive_below else 1
            other = (self._vertical if direction[1] == 0 else self._horizontal).get(after, net)
            yield after, direction, length + BEND * bends + CROSSING * (other != net)

    def _mark_end(self, net: int, point: Point, away: Point) -> None:
        (self._horizontal if away[1] == 0 else self._vertical).setdefault(point, net)

    def _may_turn(self, point: Point, net: int) -> bool:
        return self._horizontal.get(point, net) == net and self._vertical.get(point, net) == net

    def _is_free(self, point: Point, heading: Point, net: int, turning: bool) -> bool:
        """Whether a wire of the net may pass a point: across a straight wire of another net, but not along it."""
        if point in self._blocked:
            return False
        if turning:
            return self._may_turn(point, net)
        along = self._horizontal if heading[1] == 0 else self._vertical
        return along.get(point, net) == net and self._turns.get(point, {net}) <= {net}
