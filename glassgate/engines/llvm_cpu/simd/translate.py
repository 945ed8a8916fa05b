"""Translates kernels to LLVM code. Kernels are written in a subset of Python in which each variable has one type.

A kernel is a function of one address. Its values are 64-bit integers, arrays, booleans, floating-point numbers, vectors
and masks. Its statements are assignments, `if`, `while`, `for` over a range or a tuple, `return` and calls. A call of a
Python function is replaced by the translation of its body. An `Instruction` appends its own code. Constants, and
branches on constants, are evaluated when the kernel is compiled.
"""

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.arithmetic import (
    BINARY,
    COMPARISONS,
    UNARY,
    apply_binary,
    apply_comparison,
    apply_unary,
    common_type,
)
from glassgate.engines.llvm_cpu.simd.instructions import BOOLEAN, DOUBLE, INT64, Operand, cast


def translate(text: str, name: str, names: Mapping[str, Any]) -> ir.Module:
    """Translate the text of a kernel to an LLVM module with one function.

    Args:
        text: the kernel, a Python function of one address.
        name: the name of the module and of its function.
        names: the functions and numbers that the text uses.
    """
    module = ir.Module(name)
    (definition,) = (statement for statement in ast.parse(text).body if isinstance(statement, ast.FunctionDef))
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64]), name)
    function.attributes.add("nounwind")
    entry, begin = (function.append_basic_block(block) for block in ("entry", "begin"))  # variables are in `entry`
    builder = ir.IRBuilder(begin)
    _Translation(builder, definition, names, function.args).run()
    builder.ret_void()
    ir.IRBuilder(entry).branch(begin)
    return module


def inline(builder: ir.IRBuilder, function: FunctionType, *values: Operand) -> Any:
    """Append the code of a call of a Python function, and return the result of the call."""
    return _Translation(builder, _parse(function.__code__), _Names(function), values).run()


@cache
def _parse(code: CodeType) -> ast.FunctionDef:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(code))).body
    assert isinstance(definition, ast.FunctionDef)
    return definition


class _Names(Mapping[str, Any]):
    """The names of the closure and of the module of a Python function."""

    def __init__(self, function: FunctionType) -> None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._closure, self._module = dict(cells), function.__globals__

    def __getitem__(self, name: str) -> Any:
        return self._closure[name].cell_contents if name in self._closure else self._module[name]

    def __iter__(self) -> Iterator[str]:
        return iter({*self._closure, *self._module})

    def __len__(self) -> int:
        return len({*self._closure, *self._module})


class _Translation:
    """The translation of one call of a function.

    Args:
        builder: appends the code.
        definition: the function.
        names: the values of the names that the function reads, except its own variables and Python's builtins.
        arguments: the values of its parameters.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        definition: ast.FunctionDef,
        names: Mapping[str, Any],
        arguments: Sequence[Operand],
    ) -> None:
        self._builder, self._definition, self._names = builder, definition, names
        self._variables: dict[str, ir.Value] = {}
        parameters = [parameter.arg for parameter in definition.args.args]
        self._constant_parameters = dict(zip(parameters, arguments, strict=True))
        """The parameters to which the function assigns no value."""
        nodes = [*ast.walk(definition)]
        assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for name in parameters:
            if name in assigned:
                self._store(name, self._constant_parameters.pop(name))
        *_, last = definition.body
        self._early_returns = [node for node in nodes if isinstance(node, ast.Return) and node is not last]
        self._end: ir.Block | None = None

    def run(self) -> Any:
        """Append the code of the function, and return its result: a value, a tuple of values, or None."""
        *body, last = self._definition.body
        if self._early_returns:
            self._end = self._builder.append_basic_block("returned")
        self._statements(body if isinstance(last, ast.Return) else [*body, last])
        result = None
        if isinstance(last, ast.Return) and last.value is not None and not self._builder.block.is_terminated:
            result = self._value(last.value)
            assert not self._early_returns, "a function with a result can return only at its end"
        if self._end is not None:
            self._branch_to(self._end)
            self._builder.position_at_end(self._end)
        return result

    def _statements(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._builder.block.is_terminated:
                return
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Expr(ast.Constant()):
                pass
            case ast.Expr(value):
                self._value(value)
            case ast.Assign([target], value):
                self._assign(target, self._value(value))
            case ast.AugAssign(target, operation, value):
                self._assign(target, apply_binary(self._builder, operation, self._value(target), self._value(value)))
            case ast.If(test, body, orelse):
                self._if(self._condition(test), body, orelse)
            case ast.While(test, body, []):
                self._while(lambda: self._condition(test), lambda: self._statements(body))
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), bounds), body, []):
                self._for(name, [self._value(bound) for bound in bounds], body)
            case ast.For(ast.Name(name), ast.Tuple(parts), body, []):
                for part in parts:
                    self._store(name, self._value(part))
                    self._statements(body)
            case ast.Return(None) if self._end is not None:
                self._branch_to(self._end)
            case _:
                raise _unsupported(statement)

    def _branch_to(self, block: ir.Block) -> None:
        if not self._builder.block.is_terminated:
            self._builder.branch(block)

    def _if(self, test: Operand, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        if not isinstance(test, ir.Value):
            self._statements(body if test else orelse)
            return
        builder = self._builder
        then, other, after = (builder.append_basic_block(name) for name in ("then", "else", "after"))
        builder.cbranch(test, then, other)
        for block, statements in ((then, body), (other, orelse)):
            builder.position_at_end(block)
            self._statements(statements)
            self._branch_to(after)
        builder.position_at_end(after)

    def _while(self, condition: Callable[[], Operand], body: Callable[[], None]) -> None:
        builder = self._builder
        head, inside, after = (builder.append_basic_block(name) for name in ("while", "do", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(cast(builder, condition(), BOOLEAN), inside, after)
        builder.position_at_end(inside)
        body()
        self._branch_to(head)
        builder.position_at_end(after)

    def _for(self, name: str, bounds: Sequence[Operand], body: Sequence[ast.stmt]) -> None:
        builder = self._builder
        start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        # A step that is not a constant must be positive.
        symbol = ">" if isinstance(step, int) and step < 0 else "<"
        stop, step, counter = self._integer(stop), self._integer(step), self._allocate(INT64)
        builder.store(self._integer(start), counter)

        def condition() -> ir.Value:
            return builder.icmp_signed(symbol, builder.load(counter), stop)

        def run() -> None:
            self._store(name, builder.load(counter))
            self._statements(body)
            if not builder.block.is_terminated:
                builder.store(builder.add(builder.load(counter), step, flags=["nsw"]), counter)

        self._while(condition, run)

    def _allocate(self, kind: ir.Type) -> ir.Value:
        """Allocate memory for a variable in the entry block."""
        with self._builder.goto_block(self._builder.function.entry_basic_block):
            return self._builder.alloca(kind)

    def _store(self, name: str, value: Operand) -> None:
        builder = self._builder
        if name not in self._variables:
            if not isinstance(value, ir.Value):
                value = cast(builder, value, DOUBLE if isinstance(value, float) else INT64)
            self._variables[name] = self._allocate(value.type)
        pointer = self._variables[name]
        builder.store(cast(builder, value, pointer.type.pointee), pointer)

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(name):
                self._store(name, value)
            case ast.Tuple(targets):
                for element, element_value in zip(targets, value, strict=True):
                    self._assign(element, element_value)
            case ast.Subscript(array, index):
                pointer = self._element(self._value(array), self._value(index))
                self._builder.store(cast(self._builder, value, pointer.type.pointee), pointer)
            case _:
                raise _unsupported(target)

    def _element(self, array: ir.Value, index: Operand) -> ir.Value:
        return self._builder.gep(array, [self._integer(index)])

    def _integer(self, x: Operand) -> ir.Value:
        return cast(self._builder, x, INT64)

    def _condition(self, test: ast.expr) -> Operand:
        value = self._value(test)
        if not isinstance(value, ir.Value) or value.type == BOOLEAN:
            return value
        return self._builder.icmp_signed("!=", value, value.type(0))

    def _value(self, expression: ast.expr) -> Any:
        match expression:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self._name(name)
            case ast.Tuple(parts):
                return tuple([self._value(part) for part in parts])
            case ast.BinOp(a, operation, b) if type(operation) in BINARY:
                return apply_binary(self._builder, operation, self._value(a), self._value(b))
            case ast.UnaryOp(operation, a) if type(operation) in (ast.Not, *UNARY):
                return self._unary(operation, a)
            case ast.Compare(a, [operation], [b]) if type(operation) in COMPARISONS:
                return apply_comparison(self._builder, operation, self._value(a), self._value(b))
            case ast.BoolOp(operation, [first, *others]):
                return self._bool_op(isinstance(operation, ast.Or), self._condition(first), others)
            case ast.IfExp(test, a, b):
                return self._if_expression(self._condition(test), a, b)
            case ast.Subscript(array, index):
                return self._subscript(self._value(array), self._value(index))
            case ast.Call(function, arguments, []):
                return self._call(self._value(function), [self._value(argument) for argument in arguments])
        raise _unsupported(expression)

    def _name(self, name: str) -> Any:
        if name in self._constant_parameters:
            return self._constant_parameters[name]
        if name in self._variables:
            return self._builder.load(self._variables[name])
        return self._names[name] if name in self._names else getattr(builtins, name)

    def _subscript(self, array: Any, index: Operand) -> Operand:
        if isinstance(array, tuple):
            assert isinstance(index, int)
            return array[index]
        element = self._builder.load(self._element(array, index))
        return self._integer(element) if isinstance(element.type, ir.IntType) else element

    def _unary(self, operation: ast.unaryop, expression: ast.expr) -> Operand:
        if not isinstance(operation, ast.Not):
            return apply_unary(self._builder, operation, self._value(expression))
        test = self._condition(expression)
        return self._builder.not_(test) if isinstance(test, ir.Value) else not test

    def _bool_op(self, is_or: bool, first: Operand, others: Sequence[ast.expr]) -> Operand:
        """Append the code of `or` if `is_or`, else of `and`. Evaluate conditions until one decides the result."""
        if not isinstance(first, ir.Value):
            if bool(first) is is_or or not others:
                return is_or
            return self._bool_op(is_or, self._condition(others[0]), others[1:])
        for expression in others:
            decides = first if is_or else self._builder.not_(first)
            first = self._merge_branches(decides, lambda: is_or, partial(self._condition, expression), BOOLEAN)
        return first

    def _if_expression(self, test: Operand, a: ast.expr, b: ast.expr) -> Any:
        if not isinstance(test, ir.Value):
            return self._value(a if test else b)
        return self._merge_branches(test, lambda: self._value(a), lambda: self._value(b))

    def _merge_branches(
        self, test: ir.Value, a: Callable[[], Operand], b: Callable[[], Operand], kind: ir.Type | None = None
    ) -> Any:
        """Return `a()` if `test`, else `b()`: a value or a tuple of values. Only the selected code runs."""
        builder = self._builder
        then, other, after = (builder.append_basic_block(name) for name in ("then", "else", "after"))
        builder.cbranch(test, then, other)
        branches: list[tuple[Any, ir.Block]] = []
        for block, value in ((then, a), (other, b)):
            builder.position_at_end(block)
            branches.append((value(), builder.block))
            builder.branch(after)
        if isinstance(branches[0][0], tuple):
            elements = [[(x, block) for x in values] for values, block in branches]
            return tuple([self._phi(after, pair, kind) for pair in zip(*elements, strict=True)])
        return self._phi(after, branches, kind)

    def _phi(self, after: ir.Block, branches: Sequence[tuple[Operand, ir.Block]], kind: ir.Type | None) -> ir.Value:
        """Return the value of the branch that was taken. `after` is the block in which the branches meet."""
        kind = kind or next((x.type for x, _ in branches if isinstance(x, ir.Value)), None)
        kind = kind or common_type(*[x for x, _ in branches])
        incoming = []
        for x, block in branches:
            self._builder.position_before(block.terminator)
            incoming.append((cast(self._builder, x, kind), block))
        self._builder.position_at_end(after)
        result = self._builder.phi(kind)
        for x, block in incoming:
            result.add_incoming(x, block)
        return result

    def _call(self, function: Any, arguments: list[Operand]) -> Any:
        builder = self._builder
        if hasattr(function, "append"):
            return function.append(builder, arguments)
        if isinstance(function, FunctionType):
            return inline(builder, function, *arguments)
        if function is float and isinstance(arguments[0], str):
            return float(arguments[0])
        if function in (min, max):
            if not any(isinstance(x, ir.Value) for x in arguments):
                return function(arguments)
            a, b = map(self._integer, arguments)
            return builder.select(builder.icmp_signed("<" if function is min else ">", a, b), a, b)
        raise TypeError(f"kernels cannot call {function!r}")


def _unsupported(node: ast.AST) -> TypeError:
    return TypeError(f"kernels cannot contain `{ast.unparse(node)}`")
