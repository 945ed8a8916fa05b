"""SIMD vectors: types, masks, memory access, and expressions that build LLVM code.

`mathematics.py` defines the mathematical functions of vectors, `microkernel.py` the matrix products.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import (
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    Instruction,
    Operand,
    call,
    cast,
    constant_vector,
    instruction,
    pointer_at,
    splat,
)


class VectorType(NamedTuple):
    """A vector of `lanes` numbers of 32 or 64 bits."""

    bits: int
    lanes: int

    @property
    def element(self) -> ir.Type:
        """The LLVM type of a number."""
        return FLOAT if self.bits == 32 else DOUBLE

    @property
    def llvm(self) -> ir.Type:
        """The LLVM type of the vector."""
        return ir.VectorType(self.element, self.lanes)

    @property
    def number_size(self) -> int:
        """The size of a number in bytes."""
        return self.bits // 8

    @property
    def zero(self) -> ir.Value:
        """A vector of zeros."""
        return constant_vector(self.element, [0.0] * self.lanes)

    def __str__(self) -> str:
        return f"float{self.bits}x{self.lanes}"


class Vector:
    """An LLVM vector while code is being built: `a * b + 1.0` appends the instructions that compute it."""

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value, self.type = builder, value, value.type

    @property
    def bits(self) -> int:
        """The number of bits of one number: 32 or 64."""
        return 32 if self.type.element == FLOAT else 64

    def broadcast(self, number: "Vector | float | int") -> "Vector":
        """Return a vector of this type with the number in every lane. A vector is returned unchanged."""
        if isinstance(number, Vector):
            return number
        return Vector(self.builder, cast(self.builder, number, self.type))

    def call(self, name: str, *others: "Vector | float") -> "Vector":
        """Call an LLVM intrinsic for vectors of this type."""
        values = [self.value, *(self.broadcast(x).value for x in others)]
        return Vector(self.builder, call(self.builder, f"{name}.v{self.type.count}f{self.bits}", self.type, *values))

    def _binary(self, instruction: str, a: Any, b: Any, **options: Any) -> "Vector":
        a, b = self.broadcast(a), self.broadcast(b)
        return Vector(self.builder, getattr(self.builder, instruction)(a.value, b.value, **options))

    def __add__(self, x: Any) -> "Vector":
        return self._binary("fadd", self, x, flags=["contract"])

    def __sub__(self, x: Any) -> "Vector":
        return self._binary("fsub", self, x, flags=["contract"])

    def __rsub__(self, x: Any) -> "Vector":
        return self._binary("fsub", x, self, flags=["contract"])

    def __mul__(self, x: Any) -> "Vector":
        return self._binary("fmul", self, x, flags=["contract"])

    def __truediv__(self, x: Any) -> "Vector":
        return self._binary("fdiv", self, x)

    def __rtruediv__(self, x: Any) -> "Vector":
        return self._binary("fdiv", x, self)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "Vector":
        return Vector(self.builder, self.builder.fneg(self.value))

    def __and__(self, x: Any) -> "Vector":
        return self.integer_op(x, "and_")

    def __or__(self, x: Any) -> "Vector":
        return self.integer_op(x, "or_")

    def __invert__(self) -> "Vector":
        return self.integer_op(1, "xor")

    def compare(self, x: Any, symbol: str) -> "Vector":
        """Return the mask of a comparison with a vector or a number. A comparison with NaN is true only for `!=`."""
        build = self.builder.fcmp_unordered if symbol == "!=" else self.builder.fcmp_ordered
        return Vector(self.builder, build(symbol, self.value, self.broadcast(x).value))

    def where(self, a: "Vector", b: "Vector | float") -> "Vector":
        """Return `a` where this mask is true, `b` elsewhere."""
        return Vector(self.builder, self.builder.select(self.value, a.value, a.broadcast(b).value))

    def fma(self, factor: Any, term: Any) -> "Vector":
        """Compute `self * factor + term`, rounded once if the processor supports it."""
        return self.call("llvm.fmuladd", factor, term)

    def as_bits(self) -> "Vector":
        """Return the same bits, as integers."""
        return Vector(
            self.builder, self.builder.bitcast(self.value, ir.VectorType(ir.IntType(self.bits), self.type.count))
        )

    def integer_op(self, x: "Vector | int", instruction: str) -> "Vector":
        """Return the result of an instruction on integers or masks: add, sub, shl, lshr, ashr, and_, or_ or xor."""
        return self._binary(instruction, self, x)

    def as_float(self, vector: "Vector") -> "Vector":
        """Return the same bits, as floating-point numbers of the type of `vector`."""
        return Vector(self.builder, self.builder.bitcast(self.value, vector.type))


class VectorFunction(NamedTuple):
    """A function of vectors and masks that kernels call. A number as argument becomes a vector of equal lanes."""

    code: Callable[..., Vector]

    def append(self, builder: ir.IRBuilder, operands: Sequence[Operand]) -> ir.Value:
        """Append the code for these operands. At least one of them must be a vector of floating-point numbers."""
        kind = next(
            x.type
            for x in operands
            if isinstance(x, ir.Value) and isinstance(x.type, ir.VectorType) and x.type.element in (FLOAT, DOUBLE)
        )
        values = [
            x if isinstance(x, ir.Value) and isinstance(x.type, ir.VectorType) else cast(builder, x, kind)
            for x in operands
        ]
        return self.code(*[Vector(builder, value) for value in values]).value


def _pointer(builder: ir.IRBuilder, V: VectorType, address: ir.Value, index: ir.Value) -> ir.Value:
    return builder.bitcast(builder.gep(pointer_at(builder, address, V.element), [index]), V.llvm.as_pointer())


def mask_of_first(builder: ir.IRBuilder, lanes: int, live: ir.Value) -> ir.Value:
    """Return the mask of the first `live` lanes."""
    return builder.icmp_signed(
        "<", constant_vector(INT32, range(lanes)), splat(builder, builder.trunc(live, INT32), lanes)
    )


def load_first(builder: ir.IRBuilder, pointer: ir.Value, size: int, live: ir.Value) -> ir.Value:
    """Read the first `live` numbers of a vector from memory. The other lanes are zero.

    Args:
        builder: appends the code.
        pointer: the pointer to the vector.
        size: the size of a number in bytes.
        live: the number of lanes to read; may be negative or exceed the number of lanes.
    """
    kind = pointer.type.pointee
    zero, mask = constant_vector(kind.element, [0] * kind.count), mask_of_first(builder, kind.count, live)
    return call(builder, f"llvm.masked.load.{_suffix(kind, size)}", kind, pointer, INT32(size), mask, zero)


def store_first(builder: ir.IRBuilder, pointer: ir.Value, size: int, live: ir.Value, vector: ir.Value) -> None:
    """Write the first `live` numbers of a vector to memory; the arguments are those of `load_first`."""
    kind, mask = vector.type, mask_of_first(builder, vector.type.count, live)
    call(builder, f"llvm.masked.store.{_suffix(kind, size)}", ir.VoidType(), vector, pointer, INT32(size), mask)


def _suffix(kind: ir.Type, size: int) -> str:
    return f"v{kind.count}{'i' if isinstance(kind.element, ir.IntType) else 'f'}{8 * size}.p0"


def masked_load(builder: ir.IRBuilder, V: VectorType, address: ir.Value, index: ir.Value, live: ir.Value) -> ir.Value:
    """Read the first `live` lanes from memory; the other lanes are zero."""
    return load_first(builder, _pointer(builder, V, address, index), V.number_size, live)


def masked_store(
    builder: ir.IRBuilder, V: VectorType, address: ir.Value, index: ir.Value, live: ir.Value, vector: ir.Value
) -> None:
    """Write the first `live` lanes to memory."""
    store_first(builder, _pointer(builder, V, address, index), V.number_size, live, vector)


def load_two(builder: ir.IRBuilder, V: VectorType, address: ir.Value, live: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Read the first `live` numbers from memory into two vectors, padded with zeros."""
    lanes = INT64(V.lanes)
    first = masked_load(builder, V, address, INT64(0), live)
    return first, masked_load(builder, V, address, lanes, builder.sub(live, lanes))


def _is_whole(builder: ir.IRBuilder, V: VectorType, live: ir.Value) -> ir.Value:
    """Return whether all lanes are live. If so, no mask is used, because masked stores are not forwarded to loads."""
    return builder.icmp_signed(">=", live, INT64(V.lanes))


class MemoryFunctions(NamedTuple):
    """The functions of kernels that read and write vectors of one type, by name.

    `address` is the address of an array, and `index` the index of the vector's first number in it.
    """

    load: Instruction
    """load(address, index, live): reads the first `live` lanes; the other lanes are zero."""
    store: Instruction
    """store(address, index, live, vector): writes the first `live` lanes."""
    fill: Instruction
    """fill(number): a vector with the number in every lane."""
    number: Instruction
    """number(address): reads one number."""
    keep: Instruction
    """keep(vector, live): the vector with zeros after the first `live` lanes."""
    put_total: Instruction
    """put_total(address, vector): writes the sum of the lanes as one number."""
    add_total: Instruction
    """add_total(address, vector): adds the sum of the lanes to a number in memory."""
    total: Instruction
    """total(vector): a vector with the sum of the lanes in every lane."""
    gather: Instruction
    """gather(address, index, stride, live): reads the first `live` lanes, whose indices differ by `stride`."""


@cache
def memory_functions(bits: int, lanes: int) -> MemoryFunctions:
    """Return the functions that read and write vectors of one type."""
    V = VectorType(bits, lanes)

    @instruction(INT64, INT64, INT64)
    def load(builder, address, index, live):
        if isinstance(live, ir.Constant) and live.constant >= lanes:
            return builder.load(_pointer(builder, V, address, index), align=V.number_size)
        with builder.if_else(_is_whole(builder, V, live)) as (whole, part):
            with whole:
                whole_vector = builder.load(_pointer(builder, V, address, index), align=V.number_size)
                after_whole = builder.block
            with part:
                partial_vector, after_part = masked_load(builder, V, address, index, live), builder.block
        merged = builder.phi(V.llvm)
        merged.add_incoming(whole_vector, after_whole)
        merged.add_incoming(partial_vector, after_part)
        return merged

    @instruction(INT64, INT64, INT64, V.llvm)
    def store(builder, address, index, live, vector):
        if isinstance(live, ir.Constant) and live.constant >= lanes:
            builder.store(vector, _pointer(builder, V, address, index)).align = V.number_size
            return
        with builder.if_else(_is_whole(builder, V, live)) as (whole, part):
            with whole:
                builder.store(vector, _pointer(builder, V, address, index)).align = V.number_size
            with part:
                masked_store(builder, V, address, index, live, vector)

    @instruction(V.element)
    def fill(builder, number):
        return cast(builder, number, V.llvm)

    @instruction(INT64)
    def number(builder, address):
        return builder.load(pointer_at(builder, address, V.element))

    @instruction(V.llvm, INT64)
    def keep(builder, vector, live):
        return builder.select(mask_of_first(builder, lanes, live), vector, V.zero)

    def sum_of_lanes(builder, vector):
        name = f"llvm.vector.reduce.fadd.v{lanes}f{bits}"
        return call(builder, name, V.element, V.element(-0.0), vector, fastmath=["reassoc"])

    @instruction(INT64, V.llvm)
    def put_total(builder, address, vector):
        builder.store(sum_of_lanes(builder, vector), pointer_at(builder, address, V.element))

    @instruction(INT64, V.llvm)
    def add_total(builder, address, vector):
        pointer = pointer_at(builder, address, V.element)
        builder.store(builder.fadd(builder.load(pointer), sum_of_lanes(builder, vector)), pointer)

    @instruction(V.llvm)
    def total(builder, vector):
        return splat(builder, sum_of_lanes(builder, vector), lanes)

    @instruction(INT64, INT64, INT64, INT64)
    def gather(builder, address, index, stride, live):
        vector = V.zero
        for lane in range(lanes):
            at = builder.add(index, builder.mul(stride, INT64(lane)))
            # A lane that is not live reads the first number of the array.
            at = builder.select(builder.icmp_signed("<", INT64(lane), live), at, INT64(0))
            element = builder.load(builder.gep(pointer_at(builder, address, V.element), [at]))
            vector = builder.insert_element(vector, element, INT32(lane))
        return vector

    return MemoryFunctions(load, store, fill, number, keep, put_total, add_total, total, gather)
