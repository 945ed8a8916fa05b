"""Prints the values of a step as Triton blocks in registers.

Each value is a block with one dimension per axis, in the order of the program's axes. The sizes of blocks are powers of
two; numbers beyond the size of an axis have no meaning, and reductions leave them out. A value whose elements are at
other positions than those of its arguments goes through scratch memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

from glassgate.engines.arrays.nests import is_view, memory_of
from glassgate.engines.arrays.places import Place, Wrapped, at
from glassgate.engines.arrays.program import ArrayProgram, Axes
from glassgate.engines.lowering.expressions import Expression, Names
from glassgate.engines.lowering.nests import Memory, Store
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.ops import Index
from glassgate.engines.symbolic.values import NotTraceable, topological_order
from glassgate.engines.triton_gpu.dialect import TRITON


class Blocks:
    """The blocks of the values of a step.

    Args:
        program: the passes of the step.
        names: the names of the variables of the kernel.

    Attributes:
        scratch_size: the numbers in the scratch memory of a program.
        largest: the number of elements of the largest block.
    """

    def __init__(self, program: ArrayProgram, names: Names) -> None:
        self.sizes, self.names, self._order = program.sizes, names, program.order
        self.scratch_size, self.largest = 0, 1
        self._axes: dict[str, int] = {}

    def axis_lines(self) -> list[str]:
        """The lines that define the indices of each axis that blocks have, and which of them exist."""
        lines = []
        for axis, k in self._axes.items():
            lines.append(f"i{k} = tl.arange(0, {self._extent(axis)})  # {axis}")
            if self._is_padded(axis):
                lines.append(f"ok{k} = i{k} < {self.sizes[axis]}")
        return lines

    def sorted(self, axes: Iterable[str]) -> Axes:
        """The axes of a block, outermost first."""
        return tuple(sorted(axes, key=self._order.index))

    def shape(self, axes: Sequence[str]) -> str:
        """The shape of a block."""
        extents = [self._extent(axis) for axis in self.sorted(axes)]
        self.largest = max(self.largest, prod(extents))
        return f"[{', '.join(map(str, extents))}]"

    def spread(self, text: str, own: Axes, axes: Axes) -> str:
        """A block over more axes. A number needs none."""
        if not own or own == axes:
            return text
        return f"{text}[{', '.join(':' if axis in own else 'None' for axis in axes)}]"

    def load(self, place: Place | Wrapped, axes: Sequence[str], condition: str = "") -> str:
        """The expression of the block at a place in memory. `condition` is a mask of all of its elements."""
        axes = self.sorted(axes)
        masks = self._masks(axes, axes) + ([condition] if condition else [])
        default = f", {' & '.join(masks)}, 0.0" if masks else ""
        return f"tl.load({self._address(place, axes)}{default})"

    def store(self, place: Place | Wrapped, axes: Sequence[str], text: str, condition: str = "") -> str:
        """The line that writes a block to memory."""
        axes = self.sorted(axes)
        masks = self._masks(axes, axes) + ([condition] if condition else [])
        return f"tl.store({self._address(place, axes)}, {text}{', ' if masks else ''}{' & '.join(masks)})"

    def reduced(self, text: str, own: Axes, axes: Iterable[str], function: str, neutral: str) -> str:
        """A reduction of a block over some of its axes."""
        axes = self.sorted(axes)
        text = self.filled(text, own, axes, neutral)
        for axis in reversed(axes):
            text = f"{function}({text}, {own.index(axis)})"
        return text

    def filled(self, text: str, own: Axes, axes: Iterable[str], number: str) -> str:
        """A block with a number in place of elements that do not exist along some of its axes."""
        masks = self._masks(axes, own)
        return f"tl.where({' & '.join(masks)}, {text}, {number})" if masks else text

    def contiguous(self, address: str, axes: Sequence[str]) -> Place:
        """The place of a contiguous array."""
        return Place(address, {axis: prod(self.sizes[a] for a in axes[k + 1 :]) for k, axis in enumerate(axes)})

    def allocate(self, axes: Sequence[str]) -> Place:
        """New scratch memory for a contiguous array."""
        address = f"scratch_ptr + {self.scratch_size}" if self.scratch_size else "scratch_ptr"
        self.scratch_size += prod(self.sizes[axis] for axis in axes)
        return self.contiguous(address, axes)

    def _extent(self, axis: str) -> int:
        return 1 << (self.sizes[axis] - 1).bit_length()

    def _is_padded(self, axis: str) -> bool:
        return self._extent(axis) != self.sizes[axis]

    def _number(self, axis: str) -> int:
        return self._axes.setdefault(axis, len(self._axes))

    def _masks(self, axes: Iterable[str], of: Axes) -> list[str]:
        return [self.spread(f"ok{self._number(a)}", (a,), of) for a in self.sorted(axes) if self._is_padded(a)]

    def _address(self, place: Place | Wrapped, axes: Axes) -> str:
        self.shape(axes)
        index = place.index({axis: self.spread(f"i{self._number(axis)}", (axis,), axes) for axis in axes})
        missing = [axis for axis in axes if not _moves(place, axis)]
        if missing:  # the elements along these axes are at the same position
            index = f"tl.broadcast_to({index}, {self.shape(axes)})"
        return place.address if index == "0" else f"{place.address} + {index}"


def _moves(place: Place | Wrapped, axis: str) -> bool:
    """Whether elements along an axis are at different positions."""
    if isinstance(place, Wrapped):
        return axis in place.strides or any(axis == own for each in place.indices for own, _ in each.terms)
    return bool(place.strides.get(axis))


class StepLines:
    """The lines of one pass of a step.

    Args:
        blocks: the blocks of the kernel.
        addresses: the address of each memory that is not in registers, by name.
    """

    def __init__(self, blocks: Blocks, addresses: Mapping[str, str]) -> None:
        self.blocks, self.addresses = blocks, addresses
        self.lines: list[str] = []
        self.moves = False
        """Whether values go through the scratch memory."""
        self._texts: dict[Value, str] = {}
        self._scratch: dict[Value, Place] = {}

    def print(self, stores: Sequence[Store]) -> dict[str, str]:
        """Print the values that are stored, and the stores to memory. Return the blocks of the other memories."""
        values = [store.value for store in stores]
        needed = self._needed(values)
        for value in topological_order(values):
            if value in needed:
                self._define(value)
        kept: dict[str, str] = {}
        for memory, value, adds in stores:
            text = self._whole(value, self.blocks.sorted(memory.axes))
            if place := self._place(memory):
                self.lines.append(self.blocks.store(place, memory.axes, text))
            else:
                kept[memory.name] = f"{memory.name} + {text}" if adds else text
        if self.moves:
            self.lines.append("tl.debug_barrier()")
        return kept

    def _needed(self, results: Iterable[Value]) -> set[Value]:
        needed, pending = set[Value](), [*results]
        while pending:
            value = pending.pop()
            if value not in needed:
                needed.add(value)
                if self._viewed(value) is None:
                    pending += value.inputs
        return needed

    def _place(self, memory: Memory) -> Place | None:
        """The place of a memory; None if it is in registers."""
        address = self.addresses.get(memory.name)
        return None if address is None else self.blocks.contiguous(address, memory.axes)

    def _viewed(self, value: Value) -> Place | None:
        """The place of a value that is in memory, or a part of such a value; None for other values."""
        if (memory := memory_of(value)) is not None:
            return self._place(memory)
        if is_view(value) and isinstance(value.op, ops.Gather):
            (x,) = value.inputs
            place = self._viewed(x)
            return None if place is None else place.at(value.op.indices, x.axes)
        return None

    def _define(self, value: Value) -> None:
        """Print the line that computes a value."""
        if isinstance(value.op, ops.Constant) and not value.axes:
            self._texts[value] = TRITON.number(value.op.number).text
            return
        memory = memory_of(value)
        if memory is not None and memory.name not in self.addresses:
            self._texts[value] = memory.name  # in registers
            return
        text = self._text(value)
        self.blocks.shape(value.axes)
        name = self.blocks.names.new(value.name or (memory.name if memory else f"v{len(self._texts)}"))
        self._texts[value] = name
        self.lines.append(f"{name} = {text}")

    def _own(self, value: Value) -> Axes:
        return self.blocks.sorted(value.axes)

    def _text(self, value: Value) -> str:
        """The expression of a value."""
        blocks, own = self.blocks, self._own(value)
        if (place := self._viewed(value)) is not None:
            return blocks.load(place, own)
        match value.op:
            case str(op):
                return self._elementwise(op, value)
            case ops.Constant(number):
                return f"tl.full({blocks.shape(own)}, {TRITON.number(number).text}, tl.float32)"
            case ops.Concatenate(axis, parts):
                return self._concatenate(value, axis, parts)
        (x,) = value.inputs
        text, of = self._texts[x], self._own(x)
        match value.op:
            case ops.Sum(axes):
                return blocks.reduced(text, of, axes, "total", "0.0")
            case ops.Max(axes):
                return blocks.reduced(text, of, axes, "largest", 'float("-inf")')
            case ops.CumulativeSum(axis, reverse):
                return f"running_total({blocks.filled(text, of, [axis], '0.0')}, {of.index(axis)}, {reverse})"
            case ops.Gather(indices):
                if (renamed := _renamed(x.axes, indices, blocks.sizes)) is not None:
                    return self._permuted(text, [renamed[axis] for axis in of], own)
                return blocks.load(at(self._stored(x), x.axes, indices), own)
            case ops.Merge(axes, into):
                rest = [axis for axis in own if axis != into]
                place = self._stored(x, [*rest, *axes])
                return blocks.load(blocks.contiguous(place.address, [*rest, into]), own)
            case ops.Scatter(indices, axes):
                return self._scatter(x, indices, axes)
        raise AssertionError(f"a step has no {value.op}")

    def _elementwise(self, op: str, value: Value) -> str:
        own, operands, found = self._own(value), list[Expression](), set[str]()
        for arg in value.args:
            if not isinstance(arg, Value):
                operands.append(TRITON.number(float(arg)))
            elif isinstance(arg.op, ops.Constant):
                operands.append(TRITON.number(arg.op.number))
            else:
                found |= {*arg.axes}
                operands.append(Expression(self.blocks.spread(self._texts[arg], self._own(arg), own)))
        text = TRITON.apply(op, operands).text
        return text if found == {*own} else f"tl.broadcast_to({text}, {self.blocks.shape(own)})"

    def _permuted(self, text: str, names: Sequence[str], own: Axes) -> str:
        """A block whose dimensions are the axes `names`, in the order `own`."""
        order = [names.index(axis) for axis in own]
        return text if order == [*range(len(order))] else f"tl.permute({text}, {', '.join(map(str, order))})"

    def _whole(self, value: Value, axes: Axes) -> str:
        """A block with all elements of a memory: the value may be constant along axes that it lacks."""
        text, shape = self._texts[value], self.blocks.shape(axes)
        if isinstance(value.op, ops.Constant) and not value.axes:
            return f"tl.full({shape}, {text}, tl.float32)" if axes else text
        own = self._own(value)
        return text if own == axes else f"tl.broadcast_to({self.blocks.spread(text, own, axes)}, {shape})"

    # Values at other positions.

    def _stored(self, x: Value, axes: Sequence[str] | None = None) -> Place:
        """The place of a value in the scratch memory, with its axes in this order."""
        if x not in self._scratch or axes is not None:
            place = self.blocks.allocate(x.axes if axes is None else axes)
            self._move([self.blocks.store(place, [*place.strides], self._whole(x, self.blocks.sorted(place.strides)))])
            self._scratch[x] = place
        return self._scratch[x]

    def _move(self, stores: Iterable[str]) -> None:
        self.moves = True
        self.lines += [*stores, "tl.debug_barrier()"]

    def _concatenate(self, value: Value, axis: str, parts: Axes) -> str:
        place, start, stores = self.blocks.allocate(value.axes), 0, []
        for x, part in zip(value.inputs, parts, strict=True):
            strides = {(part if a == axis else a): stride for a, stride in place.strides.items()}
            to = Place(place.address, strides, start * place.strides[axis])
            stores.append(self.blocks.store(to, [*strides], self._whole(x, self.blocks.sorted(strides))))
            start += self.blocks.sizes[part]
        self._move(stores)
        return self.blocks.load(place, value.axes)

    def _scatter(self, x: Value, indices: Sequence[Index], axes: Axes) -> str:
        own = [*dict.fromkeys(axis for each in indices for axis, _ in each.terms)]
        if _overlap(indices, own, self.blocks.sizes):
            raise NotTraceable("the gradient of overlapping parts of an axis")
        place, text = self.blocks.allocate(axes), self._whole(x, self._own(x))
        rest = [axis for axis in x.axes if axis not in own]
        text = self.blocks.reduced(text, self._own(x), rest, "total", "0.0")
        left, all_own = self.blocks.sorted([a for a in x.axes if a in own]), self.blocks.sorted(own)
        if left != all_own and left:
            text = f"tl.broadcast_to({self.blocks.spread(text, left, all_own)}, {self.blocks.shape(all_own)})"
        self._move([self.blocks.store(place, axes, "0.0")])
        self._move([self.blocks.store(at(place, axes, indices), own, text)])
        return self.blocks.load(place, axes)


def _renamed(axes: Axes, indices: Sequence[Index], sizes: Mapping[str, int]) -> dict[str, str] | None:
    """The new name of each axis of a value that is only renamed; None if elements are at other positions."""
    names = [each.terms[0][0] if len(each.terms) == 1 else "" for each in indices]
    whole = all(
        each == Index(((name, 1),)) and sizes[name] == sizes[axis]
        for each, name, axis in zip(indices, names, axes, strict=True)
    )
    return dict(zip(axes, names, strict=True)) if whole and len({*names}) == len(names) else None


def _overlap(indices: Sequence[Index], axes: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether elements at different indices of the axes have the same positions."""
    positions = set[tuple[int, ...]]()
    for numbers in product(*(range(sizes[axis]) for axis in axes)):
        at_axis = dict(zip(axes, numbers, strict=True))
        position = []
        for each in indices:
            number = each.offset + sum(factor * at_axis[axis] for axis, factor in each.terms)
            position.append(number if each.modulus is None else number % each.modulus)
        positions.add(tuple(position))
    return len(positions) < prod(sizes[axis] for axis in axes)
