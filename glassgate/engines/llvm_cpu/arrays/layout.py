"""Where the values of one step are: in memory, or in variables of the kernel."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from glassgate.engines.arrays.nests import Order, is_view, memory_of
from glassgate.engines.arrays.places import Place
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.ops import Gather


class Names:
    """The names of the values of one kernel: `v_` and the author's name, or `v` and a number.

    They depend on nothing outside of the kernel, so that the cache of compiled kernels finds its text.
    """

    def __init__(self) -> None:
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, value: Value) -> str:
        if value not in self._names:
            name = f"v{len(self._names)}" if value.name is None else f"v_{value.name}"
            while name in self._taken or re.search(r"_\d+$", name):  # such are the names of unrolled vectors
                name += "_"
            self._names[value] = name
            self._taken.add(name)
        return self._names[value]


class Layout:
    """The memory of one step. Kept values and sums are in the scratch memory.

    Args:
        sizes: the extent of each axis.
        order: the order of loops.
        lanes: the numbers in a vector.
        names: the names of the values.

    Attributes:
        scratch_size: the numbers in the scratch memory.
        variables: the values of one number, which are variables of the kernel.
    """

    def __init__(self, sizes: Mapping[str, int], order: Order, lanes: int, names: Names) -> None:
        self.sizes, self.order, self.lanes, self.names = sizes, order, lanes, names
        self.scratch_size = 0
        self.variables: dict[Value, str] = {}
        self._places: dict[Value, Place] = {}

    def sorted(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Axes in the order of loops, outermost first."""
        return self.order(axes)

    def size(self, axes: Iterable[str]) -> int:
        """The number of elements of a value with these axes."""
        return prod(self.sizes[axis] for axis in axes)

    def strides(self, axes: Sequence[str]) -> dict[str, int]:
        """The strides of a contiguous array."""
        return {axis: self.size(axes[k + 1 :]) for k, axis in enumerate(axes)}

    def allocate(self, value: Value, axes: Sequence[str] | None = None) -> Place:
        """The place of a value in the scratch memory. For a new value, `axes` is the order of its elements."""
        if value not in self._places:
            address = f"_scratch + {self.scratch_size} * BYTES" if self.scratch_size else "_scratch"
            axes = self.sorted(value.axes) if axes is None else axes
            self._places[value] = Place(address, self.strides(axes))
            self.scratch_size += -(-self.size(axes) // self.lanes) * self.lanes
        return self._places[value]

    def place(self, value: Value) -> Place:
        """The place of a leaf, of a view, of a kept value or of a sum."""
        if (memory := memory_of(value)) is not None:
            return Place(memory.name, self.strides(memory.axes))
        if is_view(value) and isinstance(value.op, Gather):
            (x,) = value.inputs
            return self.place(x).at(value.op.indices, x.axes)
        return self.allocate(value)

    def is_computed(self, value: Value) -> bool:
        """Whether a value is in memory or in a variable."""
        return memory_of(value) is not None or value in self._places or value in self.variables
