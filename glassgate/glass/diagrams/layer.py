"""Draws the diagram of a layer from bottom to top. Each direction is a box between its initial and final states."""

from html import escape

from glassgate.glass.diagrams import svg
from glassgate.glass.languages import say
from glassgate.layers.levels import Level
from glassgate.layers.parts import Part
from glassgate.layers.stack import Recurrent

BOX, SIDE, STEP, FOOT = (176.0, 62.0), 92.0, 46.0, 40.0
"""In pixels: the size of a direction's box, the width of the states next to it, and the heights of wires and labels."""


def draw_layer(layer: Recurrent) -> svg.Diagram:
    """Draw the diagram of a layer or a stack of layers."""
    return _Drawing(layer).diagram()


class _Drawing:
    """The drawing of a layer. It grows upward, so y coordinates are negative."""

    def __init__(self, layer: Recurrent) -> None:
        self._layer, self._y = layer, 0.0
        column = BOX[0] + 2 * SIDE
        self._centres = [SIDE + BOX[0] / 2 + column * d for d in range(layer.num_directions)]
        self._middle = sum(self._centres) / len(self._centres)
        self._unmerged = layer.num_directions == 2 and layer.merge == "none"
        self._body: list[str] = []

    def diagram(self) -> svg.Diagram:
        layer = self._layer
        self._text(self._middle, say("diagram.input", count=layer.input_size), "input-name")
        self._y -= 10
        ends = [(self._middle, self._y)]
        for level in layer.glassgate.levels:
            ends = self._one_layer(level, ends)
        top = self._y - STEP
        for (x, y), width in zip(ends, level.widths, strict=True):
            self._wire([(x, y), (x, top)])
            names = ("",) if len(ends) == 1 else (say("diagram.of_forward"), say("diagram.of_reverse"))
            output = say("diagram.output", direction=names[ends.index((x, y))], count=width)
            self._body.append(svg.text(x, top - 10, output, "input-name"))
        upper = top - FOOT + 8
        size, name = layer.hidden_size, type(layer).__name__
        title = say("diagram.layer", name=name, inputs=layer.input_size, units=size, layers=layer.num_layers)
        group = f'<g transform="translate(0 {svg.number(-upper)})">'
        return svg.Diagram(
            svg.document(2 * self._middle, FOOT - 10 - upper, title, repr(layer), [group, *self._body, "</g>"])
        )

    def _one_layer(self, level: Level, below: list[svg.Coordinates]) -> list[svg.Coordinates]:
        """Draw one layer: the wires up to its boxes, the boxes, and the merge of their outputs."""
        layer, before = self._layer, below
        if level.depth and layer.dropout:
            below = [self._dropout(x, y, f"dropout {layer.dropout:g}") for x, y in below]
        y = self._y = min(y for _, y in below) - STEP
        middle = y - BOX[1] / 2
        for d, (part, x) in enumerate(zip(level.parts, self._centres, strict=True)):
            start = below[d % len(below)]
            bend_y = (start[1] + y) / 2
            self._wire([start, (start[0], bend_y), (x, bend_y), (x, y)], "" if level.depth else "input")
            self._box(part, x, middle)
        self._y = y - BOX[1]
        if len(level.parts) == 1 or self._unmerged:
            ends = [(x, self._y) for x in self._centres]
        else:
            merge_y = self._y - STEP
            for x in self._centres:
                side = -1 if x < self._middle else 1
                self._wire([(x, self._y), (x, merge_y), (self._middle + side * self._half_width(layer.merge), merge_y)])
            ends = [self._operation(self._middle, merge_y, layer.merge)]
            self._y = ends[0][1]
        if any(level.residual):
            adds = zip(level.residual, ends, strict=True)
            ends = [self._residual(before[k], end) if add else end for k, (add, end) in enumerate(adds)]
            self._y = min(y for _, y in ends)
        return ends

    def _box(self, part: Part, x: float, y: float) -> None:
        layer = self._layer
        features = part.shapes["weight_ih"][1]
        sizes = say("diagram.sizes", inputs=features, units=part.hidden_size)
        sizes += f" → {layer.proj_size}" if layer.proj_size else ""
        time = say("diagram.forward") if part.direction == 0 else say("diagram.reverse")
        lines = [(part.label, "name"), (type(layer.cell).__name__ + ", " + time, "small"), (sizes, "small")]
        body = [svg.box(x, y, *BOX, 8)]
        body += [svg.text(x, y - 13 + k * 18, escape(line), classes) for k, (line, classes) in enumerate(lines)]
        weights = ", ".join(f"{name} {tuple(shape)}" for name, shape in part.shapes.items())
        self._body.append(
            f'<g class="gate" data-name="{part.label}"><title>{escape(weights)}</title>{"".join(body)}</g>'
        )
        states, sign = layer.cell.state, 1 if part.direction == 0 else -1
        for when, side in (("0", -sign), ("n", sign)):
            at_box, outside = x + side * BOX[0] / 2, x + side * (BOX[0] / 2 + 26)
            self._wire([(outside, y), (at_box, y)] if when == "0" else [(at_box, y), (outside, y)], "state")
            names = '<tspan dy="-3">, </tspan>'.join(svg.state_name(state, when) for state in states)
            label_x = x + side * (BOX[0] / 2 + 30)
            anchor = "at-start" if side > 0 else "at-end"
            self._body.append(svg.text(label_x, y + 5, names, f"name state-name {anchor}"))

    def _residual(self, start: svg.Coordinates, end: svg.Coordinates) -> svg.Coordinates:
        """Draw the residual wire of a layer: from its input, around its box, to an addition with its output."""
        sum_y, bend_y = end[1] - STEP, start[1] - 8
        side_x = (start[0] if self._unmerged else self._centres[-1]) + BOX[0] / 2 + 12
        self._wire([end, (end[0], sum_y + 15)])
        self._wire([(start[0], bend_y), (side_x, bend_y), (side_x, sum_y), (end[0] + 15, sum_y)])
        return self._operation(end[0], sum_y, "+")

    def _dropout(self, x: float, y: float, label: str) -> svg.Coordinates:
        """Draw a dropout above a point and a wire from the point; return the point at which its output leaves."""
        self._wire([(x, y), (x, y - STEP + 15)])
        return self._operation(x, y - STEP, label)

    def _operation(self, x: float, y: float, label: str) -> svg.Coordinates:
        """Draw an operation centred on a point; return the point at which its output leaves."""
        body = svg.box(x, y, 2 * self._half_width(label), 30, 15) + svg.text(x, y + 5, escape(label))
        self._body.append(f'<g class="operation">{body}</g>')
        return x, y - 15

    @staticmethod
    def _half_width(label: str) -> float:
        """Return half the width of an operation with this label."""
        return max(15.0, len(label) * 4.0 + 10)

    def _text(self, x: float, content: str, classes: str) -> None:
        self._body.append(svg.text(x, self._y + 12, escape(content), classes))

    def _wire(self, points: list[svg.Coordinates], kind: str = "") -> None:
        self._body.append(f'<g class="{f"wire {kind}".strip()}">{svg.wire(points)}{svg.head(points)}</g>')
