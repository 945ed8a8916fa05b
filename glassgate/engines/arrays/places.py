"""The positions of the elements of values in memory, as text for kernels."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from glassgate.engines.symbolic.ops import Index


@dataclass(frozen=True)
class Place:
    """The position of each element of a value in memory.

    Attributes:
        address: the address of an array.
        strides: for each axis the distance of its elements in the array.
        offset: the index of the first element in the array.
    """

    address: str
    strides: Mapping[str, int]
    offset: int = 0

    def at(self, indices: Sequence[Index], axes: Sequence[str]) -> "Place":
        """The place of the elements at one index per axis; `axes` are the axes of the value in this order."""
        strides, offset = dict[str, int](), self.offset
        for axis, index in zip(axes, indices, strict=True):
            offset += self.strides[axis] * index.offset
            for new, factor in index.terms:
                strides[new] = strides.get(new, 0) + self.strides[axis] * factor
        return Place(self.address, strides, offset)

    def index(self, variables: Mapping[str, str]) -> str:
        """The index of an element, from the variable of each axis. Axes without a variable are at index 0."""
        terms = [_product(variables[a], stride) for a, stride in self.strides.items() if a in variables and stride]
        return " + ".join([*terms, *([str(self.offset)] if self.offset or not terms else [])])


def _product(variable: str, factor: int) -> str:
    if factor == 1:
        return variable
    is_atom = re.fullmatch(r"\w+(\[[^]]*\])?", variable)
    return f"{variable if is_atom else f'({variable})'} * {factor}"


@dataclass(frozen=True)
class Wrapped:
    """The place of elements whose index along an axis wraps around."""

    place: Place
    axes: Sequence[str]
    indices: Sequence[Index]
    strides: Mapping[str, int]
    """The strides of the other axes."""

    @property
    def address(self) -> str:
        return self.place.address

    def index(self, variables: Mapping[str, str]) -> str:
        terms = [Place("", self.strides, self.place.offset).index(variables)]
        for axis, each in zip(self.axes, self.indices, strict=True):
            inside = Place("", dict(each.terms), each.offset).index(variables)
            inside = inside if each.modulus is None else f"({inside}) % {each.modulus}"
            terms.append(f"({inside}) * {self.place.strides[axis]}")
        return " + ".join(terms)


def at(place: Place, axes: Sequence[str], indices: Sequence[Index], others: Iterable[str] = ()) -> Place | Wrapped:
    """The place of the elements at one index per axis of `axes`. Of `others`, axes that are not in `axes` stay."""
    stay = {axis: place.strides[axis] for axis in others if axis in place.strides and axis not in axes}
    if all(each.modulus is None for each in indices):
        new = place.at(indices, axes)
        return Place(new.address, {**stay, **new.strides}, new.offset)
    return Wrapped(place, axes, indices, stay)
