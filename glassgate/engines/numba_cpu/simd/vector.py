"""A SIMD vector as a Numba type: its operators, memory access and masks, and the expressions that build LLVM code.

`mathematics.py` defines its functions, `microkernel.py` the matrix products.
"""

import operator
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin, lower_cast
from numba.core.typing.templates import AbstractTemplate, builtin_registry, signature
from numba.extending import intrinsic, models, register_model

INT32, INT64 = ir.IntType(32), ir.IntType(64)


class VectorType(types.Type):
    """A vector of `lanes` numbers of 32 or 64 bits."""

    def __init__(self, bits: int, lanes: int) -> None:
        super().__init__(f"float{bits}x{lanes}")
        self.element = ir.FloatType() if bits == 32 else ir.DoubleType()
        self.llvm = ir.VectorType(self.element, lanes)


class MaskType(types.Type):
    """A vector of `lanes` booleans: the result of comparing two vectors."""

    def __init__(self, lanes: int) -> None:
        super().__init__(f"maskx{lanes}")
        self.llvm = ir.VectorType(ir.IntType(1), lanes)


@register_model(VectorType)
@register_model(MaskType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.llvm)


class Lanes:
    """An LLVM vector while code is being built: `a * b + 1.0` appends the instructions that compute it."""

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value, self.type = builder, value, value.type

    @property
    def bits(self) -> int:
        """The number of bits of one number: 32 or 64."""
        return 32 if self.type.element == ir.FloatType() else 64

    def like(self, other: "Lanes | float | int") -> "Lanes":
        """Return a vector with the number in every lane. A vector is returned unchanged."""
        if isinstance(other, Lanes):
            return other
        return Lanes(self.builder, ir.Constant(self.type, [other] * self.type.count))

    def call(self, name: str, *others: "Lanes | float") -> "Lanes":
        """Call an LLVM intrinsic for vectors of this type."""
        values = [self.value, *(self.like(x).value for x in others)]
        return Lanes(self.builder, self._intrinsic(name, values))

    def _intrinsic(self, name: str, values: list[ir.Value]) -> ir.Value:
        kind = ir.FunctionType(self.type, [v.type for v in values])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name + self.suffix), values)

    @property
    def suffix(self) -> str:
        return f".v{self.type.count}f{self.bits}"

    def _binary(self, instruction: str, a: Any, b: Any, **options: Any) -> "Lanes":
        a, b = self.like(a), self.like(b)
        return Lanes(self.builder, getattr(self.builder, instruction)(a.value, b.value, **options))

    def __add__(self, x: Any) -> "Lanes":
        return self._binary("fadd", self, x, flags=["contract"])

    def __sub__(self, x: Any) -> "Lanes":
        return self._binary("fsub", self, x, flags=["contract"])

    def __rsub__(self, x: Any) -> "Lanes":
        return self._binary("fsub", x, self, flags=["contract"])

    def __mul__(self, x: Any) -> "Lanes":
        return self._binary("fmul", self, x, flags=["contract"])

    def __truediv__(self, x: Any) -> "Lanes":
        return self._binary("fdiv", self, x)

    def __rtruediv__(self, x: Any) -> "Lanes":
        return self._binary("fdiv", x, self)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "Lanes":
        return Lanes(self.builder, self.builder.fneg(self.value))

    def compare(self, x: Any, sign: str) -> "Lanes":
        """Compare with a vector or a number; return a mask. With NaN only `!=` is true."""
        build = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
        return Lanes(self.builder, build(sign, self.value, self.like(x).value))

    def where(self, a: "Lanes", b: "Lanes | float") -> "Lanes":
        """`a` where the mask is true, `b` elsewhere."""
        return Lanes(self.builder, self.builder.select(self.value, a.value, a.like(b).value))

    def fma(self, factor: Any, term: Any) -> "Lanes":
        """`self * factor + term`, rounded once where the processor can."""
        return self.call("llvm.fmuladd", factor, term)

    def as_bits(self) -> "Lanes":
        """The same bits, as integers."""
        return Lanes(
            self.builder, self.builder.bitcast(self.value, ir.VectorType(ir.IntType(self.bits), self.type.count))
        )

    def integer(self, x: "Lanes | int", instruction: str) -> "Lanes":
        """Append an instruction of integers or masks: add, sub, shl, lshr, ashr, and_, or_, xor."""
        return self._binary(instruction, self, x)

    def as_float(self, like: "Lanes") -> "Lanes":
        """The bits of these integers, as floating-point numbers of the type of `like`."""
        return Lanes(self.builder, self.builder.bitcast(self.value, like.type))


def splat(builder: ir.IRBuilder, scalar: ir.Value, lanes: int) -> ir.Value:
    """A vector with a number in every lane."""
    kind = ir.VectorType(scalar.type, lanes)
    first_lane = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.IntType(32)(0))
    return shuffled(builder, first_lane, first_lane, [0] * lanes)


Code = Callable[..., Lanes]


def define(function: Any, code: Code, *arguments: type[types.Type], result: type[types.Type] = VectorType) -> None:
    """Registers a function of vectors and masks, built by `code`, with Numba. A scalar argument fills all lanes."""

    class Template(AbstractTemplate):
        key = function

        def generic(self, args: Any, kws: Any) -> Any:
            like = next((a for a in args if isinstance(a, VectorType)), None) or next(iter(args), None)
            if len(args) != len(arguments) or not isinstance(like, VectorType | MaskType):
                return None
            for arg, wanted in zip(args, arguments, strict=True):
                if not isinstance(arg, wanted if wanted is MaskType else wanted | types.Number):
                    return None
            argument_types = [a if isinstance(a, MaskType) else like for a in args]
            return signature(like if isinstance(like, result) else MaskType(like.llvm.count), *argument_types)

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return code(*(Lanes(builder, a) for a in args)).value

    builtin_registry.register_global(function, types.Function(Template))
    lower_builtin(function, *arguments)(lower)


@lower_cast(types.Number, VectorType)
def _number_to_lanes(context: Any, builder: ir.IRBuilder, number: Any, kind: Any, value: ir.Value) -> ir.Value:
    scalar = types.float32 if kind.element == ir.FloatType() else types.float64
    return splat(builder, context.cast(builder, value, number, scalar), kind.llvm.count)


for _operator in (operator.add, operator.sub, operator.mul, operator.truediv):
    define(_operator, _operator, VectorType, VectorType)
define(operator.neg, operator.neg, VectorType)
for _operator, _sign in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
    (operator.ne, "!="),
):
    define(_operator, partial(Lanes.compare, sign=_sign), VectorType, VectorType, result=MaskType)
for _operator, _instruction in ((operator.and_, "and_"), (operator.or_, "or_")):
    define(_operator, partial(Lanes.integer, instruction=_instruction), MaskType, MaskType, result=MaskType)
define(operator.invert, lambda m: m.integer(1, "xor"), MaskType, result=MaskType)


def _pointer(builder: ir.IRBuilder, V: VectorType, address: ir.Value, at: ir.Value) -> ir.Value:
    first = builder.inttoptr(address, V.element.as_pointer())
    return builder.bitcast(builder.gep(first, [at]), V.llvm.as_pointer())


def _mask_of_first(builder: ir.IRBuilder, V: VectorType, live: ir.Value) -> ir.Value:
    """The mask of the first `live` lanes."""
    lanes = V.llvm.count
    numbers = ir.Constant(ir.VectorType(INT32, lanes), list(range(lanes)))
    return builder.icmp_signed("<", numbers, splat(builder, builder.trunc(live, INT32), lanes))


def _masked(builder: ir.IRBuilder, V: VectorType, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    kind = ir.FunctionType(result, [a.type for a in args])
    name = f"llvm.masked.{name}.v{V.llvm.count}f{32 if V.element == ir.FloatType() else 64}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _alignment(V: VectorType) -> ir.Value:
    return INT32(4 if V.element == ir.FloatType() else 8)


def masked_load(builder: ir.IRBuilder, V: VectorType, address: ir.Value, at: ir.Value, live: ir.Value) -> ir.Value:
    """Read the first `live` lanes from memory; the others are zero."""
    zero = ir.Constant(V.llvm, [0.0] * V.llvm.count)
    pointer, mask = _pointer(builder, V, address, at), _mask_of_first(builder, V, live)
    return _masked(builder, V, "load", V.llvm, pointer, _alignment(V), mask, zero)


def two_at(builder: ir.IRBuilder, V: VectorType, address: ir.Value, live: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Read the first `live` numbers from memory into two vectors, padded with zeros."""
    lanes = INT64(V.llvm.count)
    first = masked_load(builder, V, address, INT64(0), live)
    return first, masked_load(builder, V, address, lanes, builder.sub(live, lanes))


def shuffled(builder: ir.IRBuilder, first: ir.Value, then: ir.Value, places: Sequence[int]) -> ir.Value:
    """The lanes at these positions of two concatenated vectors."""
    return builder.shuffle_vector(first, then, ir.Constant(ir.VectorType(INT32, len(places)), [*places]))


def masked_store(
    builder: ir.IRBuilder, V: VectorType, address: ir.Value, at: ir.Value, live: ir.Value, vector: ir.Value
) -> None:
    """Write the first `live` lanes to memory."""
    pointer, mask = _pointer(builder, V, address, at), _mask_of_first(builder, V, live)
    _masked(builder, V, "store", ir.VoidType(), vector, pointer, _alignment(V), mask)


def _is_whole(builder: ir.IRBuilder, V: VectorType, live: ir.Value) -> ir.Value:
    """Whether all lanes are valid. A processor forwards a store to a load only if neither is masked."""
    return builder.icmp_signed(">=", live, INT64(V.llvm.count))


class Memory(NamedTuple):
    """How a kernel reads and writes vectors of one type. `address` is that of an array, `at` an index into it."""

    type: VectorType
    load: Any
    """load(address, at, live): reads the first `live` lanes; the others are zero."""
    store: Any
    """store(address, at, live, vector): writes the first `live` lanes."""
    fill: Any
    """fill(number): a vector with the number in every lane."""
    number: Any
    """number(address): reads one number."""
    keep: Any
    """keep(vector, live): the vector with zeros after the first `live` lanes."""
    put_total: Any
    """put_total(address, vector): writes the sum of the lanes as one number."""


@cache
def memory(bits: int, lanes: int) -> Memory:
    """The functions that read and write vectors of one type."""
    V = VectorType(bits, lanes)
    scalar = types.float32 if bits == 32 else types.float64

    @intrinsic
    def load(context, address, at, live):
        def code(context, builder, sig, args):
            address, at, live = args
            with builder.if_else(_is_whole(builder, V, live)) as (whole, part):
                with whole:
                    whole_vector = builder.load(_pointer(builder, V, address, at), align=_alignment(V).constant)
                    after_whole = builder.block
                with part:
                    partial_vector, after_part = masked_load(builder, V, address, at, live), builder.block
            merged = builder.phi(V.llvm)
            merged.add_incoming(whole_vector, after_whole)
            merged.add_incoming(partial_vector, after_part)
            return merged

        return V(types.int64, types.int64, types.int64), code

    @intrinsic
    def store(context, address, at, live, vector):
        def code(context, builder, sig, args):
            address, at, live, vector = args
            with builder.if_else(_is_whole(builder, V, live)) as (whole, part):
                with whole:
                    builder.store(vector, _pointer(builder, V, address, at)).align = _alignment(V).constant
                with part:
                    masked_store(builder, V, address, at, live, vector)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, V), code

    @intrinsic
    def fill(context, number):
        return V(scalar), lambda context, builder, sig, args: splat(builder, args[0], lanes)

    @intrinsic
    def number(context, address):
        def code(context, builder, sig, args):
            return builder.load(builder.inttoptr(args[0], V.element.as_pointer()))

        return scalar(types.int64), code

    @intrinsic
    def keep(context, vector, live):
        def code(context, builder, sig, args):
            return builder.select(_mask_of_first(builder, V, args[1]), args[0], ir.Constant(V.llvm, [0.0] * lanes))

        return V(V, types.int64), code

    @intrinsic
    def put_total(context, address, vector):
        def code(context, builder, sig, args):
            kind = ir.FunctionType(V.element, [V.element, V.llvm])
            name = f"llvm.vector.reduce.fadd.v{lanes}f{bits}"
            add = cgutils.get_or_insert_function(builder.module, kind, name)
            sum_of_lanes = builder.call(add, [V.element(-0.0), args[1]], fastmath=["reassoc"])
            builder.store(sum_of_lanes, builder.inttoptr(args[0], V.element.as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, V), code

    return Memory(V, load, store, fill, number, keep, put_total)
