"""Instructions: functions that kernels call. `translate.py` replaces each call by LLVM code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llvmlite import ir

INT8, INT16, INT32, INT64 = map(ir.IntType, (8, 16, 32, 64))
BOOLEAN = ir.IntType(1)
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
INT64_POINTER = INT64.as_pointer()
Operand: TypeAlias = ir.Value | float | int
"""A value of a kernel: an LLVM value, or a number that is known when the kernel is compiled."""


@dataclass(frozen=True)
class Instruction:
    """A function that kernels call. Its implementation appends LLVM code.

    Attributes:
        code: the implementation. It takes the builder and a value for each argument, and returns the result, if any.
        arguments: the types of the arguments.
    """

    code: Callable[..., ir.Value | None]
    arguments: tuple[ir.Type, ...]
    __name__: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "__name__", self.code.__name__)

    def __call__(self, *arguments: Any) -> Any:
        """Raise TypeError, because only kernels can call the function."""
        raise TypeError(f"only kernels call the instruction {self.__name__}")

    def append(self, builder: ir.IRBuilder, operands: Sequence[Operand]) -> ir.Value | None:
        """Append the code for these operands, which are converted to the types of the arguments."""
        values = [cast(builder, x, kind) for x, kind in zip(operands, self.arguments, strict=True)]
        return self.code(builder, *values)


def instruction(*arguments: ir.Type) -> Callable[[Callable[..., ir.Value | None]], Instruction]:
    """Return a decorator that makes a function an `Instruction`. `arguments` are the types after the builder."""
    return lambda code: Instruction(code, arguments)


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value, **options: Sequence[str]) -> ir.Value:
    """Append a call of an LLVM intrinsic or of a function of the C library."""
    kind = ir.FunctionType(result, [value.type for value in values])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, values, **options)


def pointer_at(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    """Convert an address to a pointer to a value of this type."""
    return builder.inttoptr(address, kind.as_pointer())


def splat(builder: ir.IRBuilder, scalar: ir.Value, lanes: int) -> ir.Value:
    """Return a vector with a number in every lane."""
    kind = ir.VectorType(scalar.type, lanes)
    first_lane = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, INT32(0))
    return shuffle(builder, first_lane, first_lane, [0] * lanes)


def shuffle(builder: ir.IRBuilder, first: ir.Value, second: ir.Value, mask: Sequence[int]) -> ir.Value:
    """Select lanes of two concatenated vectors by their indices."""
    return builder.shuffle_vector(first, second, constant_vector(INT32, mask))


def constant_vector(kind: ir.Type, numbers: Sequence[float]) -> ir.Constant:
    """Return a vector of constant numbers."""
    return ir.Constant(ir.VectorType(kind, len(numbers)), [*numbers])


def is_float(kind: ir.Type) -> bool:
    """Return whether values of this type are floating-point numbers."""
    return isinstance(kind, ir.FloatType | ir.DoubleType)


def cast(builder: ir.IRBuilder, x: Operand, kind: ir.Type) -> ir.Value:
    """Convert a number to a type. A number that becomes a vector fills all lanes."""
    if not isinstance(x, ir.Value):
        if isinstance(kind, ir.VectorType):
            return constant_vector(kind.element, [x] * kind.count)
        return ir.Constant(kind, float(x) if is_float(kind) else int(x))
    if x.type == kind:
        return x
    if isinstance(kind, ir.VectorType):
        return splat(builder, cast(builder, x, kind.element), kind.count)
    match is_float(x.type), is_float(kind):
        case False, True:
            return (builder.uitofp if x.type == BOOLEAN else builder.sitofp)(x, kind)
        case True, True:
            return (builder.fpext if kind == DOUBLE else builder.fptrunc)(x, kind)
        case False, False if isinstance(kind, ir.IntType) and isinstance(x.type, ir.IntType):
            # Integers of fewer than 64 bits are unsigned.
            return (builder.zext if x.type.width < kind.width else builder.trunc)(x, kind)
    raise TypeError(f"kernels cannot convert {x.type} to {kind}")


def array_at(kind: ir.Type) -> Instruction:
    """Return an instruction that converts an address to an array of numbers of this type."""
    return Instruction(lambda builder, address: pointer_at(builder, address, kind), (INT64,))


words, flags = array_at(INT64), array_at(INT8)
"""words(address) is the array of 64-bit integers at an address, flags(address) the array of bytes."""


def stack_memory(size: int) -> Instruction:
    """Return an instruction that reserves `size` bytes on the stack of the kernel and returns their address."""

    @instruction()
    def function(builder):
        with builder.goto_entry_block():
            memory = builder.alloca(ir.ArrayType(INT8, size))
            memory.align = 64
        return builder.ptrtoint(memory, INT64)

    return function
