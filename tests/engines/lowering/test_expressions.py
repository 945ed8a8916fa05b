"""Printed expressions keep the order of operations, and variables have names that the dialect allows."""

import random
import shutil
import subprocess

import pytest

from glassgate.engines.lowering.expressions import Expression
from glassgate.engines.triton_gpu.dialect import TRITON
from glassgate.export.c_dialect import scalar_dialect
from glassgate.export.javascript_dialect import JAVASCRIPT

ARITHMETIC = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
}  # fmt: skip
HEADERS = ("math", "stdint", "stdio", "stddef", "string")


def draw(dialect, generator, depth):
    """A random expression of the dialect and its value."""
    if not depth or generator.random() < 0.2:
        number = generator.choice([-1.75, 0.3, 2.0, 3.7])
        return dialect.number(number), number
    if generator.random() < 0.2:
        operand, value = draw(dialect, generator, depth - 1)
        return dialect.apply("neg", [operand]), -value
    op = generator.choice([*ARITHMETIC])
    operands, values = zip(*(draw(dialect, generator, depth - 1) for _ in range(2)), strict=True)
    if op == "div" and not values[1]:
        op = "add"
    return dialect.apply(op, operands), ARITHMETIC[op](*values)


@pytest.mark.parametrize(
    "dialect", [TRITON, scalar_dialect(double=True), JAVASCRIPT], ids=["Triton", "C", "JavaScript"]
)
def test_expressions_keep_the_order_of_operations(dialect):
    """Python has the precedences of C and JavaScript for these operators."""
    generator = random.Random(0)
    for _ in range(300):
        expression, value = draw(dialect, generator, 4)
        assert "--" not in expression.text
        assert eval(expression.text) == value, expression.text


def test_conditions_are_in_parentheses_where_they_are_operands():
    dialect = scalar_dialect(double=False)
    choice = dialect.apply("where", [dialect.apply("lt", [Expression("a"), Expression("b")]), *map(Expression, "cd")])
    assert choice.text == "a < b ? c : d"
    assert dialect.apply("mul", [choice, dialect.number(-2.0)]).text == "(a < b ? c : d) * -2.0f"
    assert dialect.apply("where", [Expression("m"), choice, choice]).text == "m ? (a < b ? c : d) : (a < b ? c : d)"


def test_names_differ():
    names = JAVASCRIPT.names()
    assert [names.new(name) for name in ("c", "c", "c_", "let")] == ["c", "c_", "c__", "let_"]
    names = scalar_dialect(double=False).names()
    assert [names.new(name) for name in ("门", "NAN", "W", "_Bool", "exp_lanes")] == [
        "u95e8", "NAN_", "W_", "v_Bool", "exp_lanes_"
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_no_variable_has_the_name_of_a_macro():
    """The compiler lists its own macros and those of the included headers."""
    text = "".join(f"#include <{header}.h>\n" for header in HEADERS)
    command = ["gcc", "-std=gnu99", "-dM", "-E", "-x", "c", "-"]
    listed = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    macros = {line.split()[1] for line in listed.splitlines()}
    macros = {name for name in macros if name.isidentifier()}  # functions are only macros before a bracket
    assert {"NAN", "INFINITY", "NULL", "unix", "INT32_MAX", "stdin"} <= macros
    names = scalar_dialect(double=False).names()
    assert {names.new(name) for name in macros}.isdisjoint(macros)
