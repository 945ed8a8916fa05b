"""Prints the nests of values whose elements are at other positions than those of their arguments.

Examples are concatenations, rolled axes, cumulative sums, and results in a memory whose axes have another order.
"""

from collections.abc import Sequence

from glassgate.engines.arrays.places import Place, Wrapped, at
from glassgate.engines.llvm_cpu.arrays.layout import Layout
from glassgate.engines.llvm_cpu.dialect import KERNEL
from glassgate.engines.lowering.nests import Store
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.ops import Index


def move_lines(layout: Layout, item: Value | Store) -> list[str]:
    """Print the nest of one item, which is as in `nests.Move`."""
    if isinstance(item, Store):
        axes = item.memory.axes
        to = Place(item.memory.name, layout.strides(axes))
        return _copy(layout, axes, to, item.value, _place(layout, item.value), item.adds)
    axes, place = layout.sorted(item.axes), layout.allocate(item)
    if isinstance(item.op, ops.Concatenate):
        return _concatenate(layout, item, item.op, place)
    (x,) = item.inputs
    match item.op:
        case ops.Gather(indices):
            return _copy(layout, axes, place, x, at(layout.place(x), x.axes, indices))
        case ops.Merge(own, into):
            strides = [layout.size(own[k + 1 :]) for k in range(len(own))]
            to = place.at([Index(tuple(zip(own, strides, strict=True)))], [into])
            to = Place(to.address, {**place.strides, **to.strides}, to.offset)
            return _copy(layout, (*(a for a in axes if a != into), *own), to, x, _place(layout, x))
        case ops.Scatter(indices, all_axes):
            new = dict.fromkeys(axis for each in indices for axis, _ in each.terms)
            loops = (*(axis for axis in x.axes if axis not in new), *new)
            lines = _clear(layout, item)
            return lines + _copy(layout, loops, at(place, all_axes, indices, x.axes), x, _place(layout, x), True)
        case ops.Max(scanned):
            return _scan(layout, item, place, scanned, is_max=True)
        case ops.CumulativeSum(axis, reverse):
            return _scan(layout, item, place, (axis,), reverse=reverse)
    raise AssertionError(f"{item.op} has no nest of its own")


def _place(layout: Layout, value: Value) -> Place:
    """The place of a value in memory; without strides for a constant or a variable."""
    if isinstance(value.op, ops.Constant) or value in layout.variables:
        return Place("", {})
    return layout.place(value)


def _concatenate(layout: Layout, item: Value, op: ops.Concatenate, place: Place) -> list[str]:
    axis, lines, start = op.axis, list[str](), 0
    for value, part in zip(item.inputs, op.parts, strict=True):
        strides = {a: s for a, s in place.strides.items() if a != axis} | {part: place.strides[axis]}
        to = Place(place.address, strides, start * place.strides[axis])
        loops = [part if a == axis else a for a in layout.sorted(item.axes)]
        lines += _copy(layout, loops, to, value, _place(layout, value))
        start += layout.sizes[part]
    return lines


def _copy(
    layout: Layout,
    axes: Sequence[str],
    to: Place | Wrapped,
    value: Value,
    source: Place | Wrapped,
    adds: bool = False,
) -> list[str]:
    """The loops over `axes` that copy each element of `source`, the place of `value`, to `to`, or add it."""
    loops = _VectorLoops(layout, axes, to, source)
    index = to.index(loops.variables)
    text = loops.read(value, source)
    if adds:
        text = f"load({to.address}, {index}, {loops.live}) + {text}"
    return loops.around([f"store({to.address}, {index}, {loops.live}, {text})"])


class _VectorLoops:
    """Loops over axes, in which one axis is divided into vectors if its elements are contiguous in the result."""

    def __init__(self, layout: Layout, axes: Sequence[str], to: Place | Wrapped, source: Place | Wrapped) -> None:
        self.layout, steps = layout, dict.fromkeys(axes, 1)
        self.live = "1"
        contiguous = [a for a in axes if to.strides.get(a) == 1 and not _wraps(to, a) and not _wraps(source, a)]
        if contiguous:
            inner = contiguous[0]
            axes = [*(axis for axis in axes if axis != inner), inner]
            steps[inner] = layout.lanes
            width = layout.sizes[inner]
            self.live = f"{layout.lanes}" if width % layout.lanes == 0 else f"{width} - _m{len(axes) - 1}"
        self.inner, self.axes, self.steps = contiguous[0] if contiguous else "", axes, steps
        self.variables = {axis: f"_m{k}" for k, axis in enumerate(axes)}

    def read(self, value: Value, source: Place | Wrapped) -> str:
        """The expression that reads a vector."""
        if value in self.layout.variables:
            return self.layout.variables[value]
        if isinstance(value.op, ops.Constant):
            return f"fill({KERNEL.number(value.op.number).text})"
        index = source.index(self.variables)
        match source.strides.get(self.inner, 0):
            case 0:
                return f"fill(number({source.address} + ({index}) * BYTES))"
            case 1:
                return f"load({source.address}, {index}, {self.live})"
            case stride:
                return f"gather({source.address}, {index}, {stride}, {self.live})"

    def around(self, lines: Sequence[str]) -> list[str]:
        """The loops with these lines inside."""
        lines = [*lines]
        for axis in reversed(self.axes):
            head = f"for {self.variables[axis]} in range(0, {self.layout.sizes[axis]}, {self.steps[axis]}):"
            lines = [head, *(f"    {line}" for line in lines)]
        return lines


def _wraps(place: Place | Wrapped, axis: str) -> bool:
    return isinstance(place, Wrapped) and axis not in place.strides


def _scan(
    layout: Layout, item: Value, place: Place, scanned: Sequence[str], is_max: bool = False, reverse: bool = False
) -> list[str]:
    """The loops of a maximum over axes, or of a cumulative sum along an axis."""
    (x,) = item.inputs
    source = _place(layout, x)
    loops = _VectorLoops(layout, [a for a in layout.sorted(item.axes) if a not in scanned], place, source)
    loops.variables |= {axis: f"_s{k}" for k, axis in enumerate(scanned)}
    if reverse:
        loops.variables[scanned[0]] = f"{layout.sizes[scanned[0]] - 1} - _s0"
    name, text = layout.names[item], loops.read(x, source)
    body = [f"{name} = maximum({name}, {text})" if is_max else f"{name} = {name} + {text}"]
    store = f"store({place.address}, {place.index(loops.variables)}, {loops.live}, {name})"
    body += [] if is_max else [store]
    for k, axis in reversed([*enumerate(scanned)]):
        body = [f"for _s{k} in range({layout.sizes[axis]}):", *(f"    {line}" for line in body)]
    start = f'{name} = fill(float("-inf"))' if is_max else f"{name} = fill(0.0)"
    return loops.around([start, *body, *([store] if is_max else [])])


def _clear(layout: Layout, value: Value) -> list[str]:
    address, size = layout.allocate(value).address, layout.size(value.axes)
    return [f"for _m0 in range(0, {size}, {layout.lanes}):", f"    store({address}, _m0, {layout.lanes}, fill(0.0))"]
