"""Lowered passes on the evaluator equal the reference: results and gradients of every cell, form and shape."""

from dataclasses import replace
from itertools import product

import pytest

import glassgate as gg
from glassgate.cell import Cell
from glassgate.engines.axes import Axis
from glassgate.engines.lowering.builder import Builder
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Elementwise, Line, Pass, Port, Role, Type, Value
from glassgate.engines.lowering.printer import format_pass
from glassgate.engines.lowering.verify import InvalidPass, verify
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from glassgate.layers.regularisers import Noisy
from tests.cases import SHAPES, Shape
from tests.compare import check
from tests.engines.costs import EVERY, OF_CPU
from tests.engines.lowering.trial import Trial

CELLS = {name: getattr(gg.cells, name)() for name in gg.cells.__all__} | {"SLSTM of 2 heads": gg.cells.SLSTM(2)}
RAGGED = Shape(4, 4, 3, 6, 0, (4, 3, 0, 2))
FORMS = [
    Form(reverse, bias, lengths, resets=states != "none", restarts=states == "own")
    for reverse, bias, lengths, states in product(
        (False, True), (True, False), (False, True), ("none", "initial", "own")
    )
]
NOISE = {
    "zoneout": lambda cell: Noisy(cell, dict.fromkeys(cell.state, 0.3), 0.0, "state"),
    "dropout on the state": lambda cell: Noisy(cell, {}, 0.3, "state"),
    "dropout on the update": lambda cell: Noisy(cell, {cell.state[0]: 0.2}, 0.3, "update"),
    "zoneout in evaluation": lambda cell: Noisy(cell, dict.fromkeys(cell.state, 0.3), 0.0, "state", training=False),
}


def shape_of(form: Form) -> Shape:
    """A small shape, with lengths if the form has them."""
    return RAGGED if form.lengths else RAGGED._replace(lengths=None)


def compare(trial: Trial) -> None:
    """Check that the passes equal the reference."""
    check(trial.by_passes(), trial.by_reference())


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_in_every_form(name: str) -> None:
    index = list(CELLS).index(name)
    for k, form in enumerate(FORMS):
        if name == "LSTM" or k % 4 == index % 4:
            compare(Trial(CELLS[name], shape_of(form), form, list(EVERY.values())[k % len(EVERY)]))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: str) -> None:
    s = SHAPES[shape]
    for reverse in (False, True):
        form = Form(reverse, lengths=s.lengths is not None, resets=True)
        compare(Trial(CELLS["LSTM"], s, form))
        compare(Trial(CELLS["GRUP" if s.H_out else "GRU"], s, form))


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("name", ["LSTM", "GRU", "SLSTM of 2 heads", "PeepholeLSTM"])
def test_every_regulariser(name: str, kind: str) -> None:
    compare(Trial(NOISE[kind](CELLS[name]), RAGGED, Form(lengths=True, resets=True)))


class Everything(Cell):
    """Separate and added halves of pre-activations, two products of one gate, row sums, values equal in all rows."""

    gates = ("a", "b", "n", "unused")
    state = ("h", "c", "unread")
    parameters = {"peep": gg.Parameter(0.5), "gain": gg.Parameter(1.0, per_gate=True)}
    heads = 2

    def step(self, a, s, p):
        centred = a.hh.a - a.hh.a.mean(-1, keepdim=True)
        gate = (p.gain.a * a.ih.a + centred + p.peep * s.c).sigmoid()
        c = gate * s.c + (1 - gate) * (p.gain.n * a.hh(gate * s.h).n + a.hh(s.c).n + a.ih.n).tanh()
        return a.b.sigmoid() * c.tanh(), c, gate * p.peep.mean(-1, keepdim=True)


def test_nested_products_and_values_without_rows() -> None:
    for form in FORMS:
        compare(Trial(Everything(), shape_of(form), form))


class Detached(Cell):
    """The gradient of the state sums over one of the two gates."""

    gates = ("f", "n")

    def step(self, a, s):
        f = a.f.sigmoid().detach()
        return f * s.h + (1 - f) * a.n.tanh()


def test_a_detached_gate() -> None:
    compare(Trial(Detached(), RAGGED, Form(lengths=True)))


def lstm() -> Pass:
    cell = equations_of(CELLS["LSTM"])
    return forward_pass(cell, build_trace(cell, OF_CPU), Form(lengths=True, save=True))


def with_line(program: Pass, number: int, line: Line) -> Pass:
    """The pass with a line of its loop replaced."""
    body = list(program.loop.body)
    body[number] = line
    return replace(program, loop=program.loop._replace(body=tuple(body)))


def test_the_text_has_a_line_for_each_operation() -> None:
    text = format_pass(lstm())
    assert "  ih [T, N, G, H] = add(Wx, bias)\n" in text
    assert "  carry c_prev [N, H]: starts as c_0, then c; ends as c_n\n" in text
    assert "  kept ih0: i_all [T, N, H]\n" in text


def test_the_verifier_reports_the_invalid_line() -> None:
    program = lstm()
    body = program.loop.body
    number, line = next((k, line) for k, line in enumerate(body) if line.result.name == "c")
    (x, y), outer = line.operation.args, program.before[-1].result
    own = Value(Type(("N", "H")), "own")
    wrong = {
        "`c \\[N, H\\] = add\\(own, v\\d+\\)`: own is read before it is defined": Elementwise("add", (own, y)),
        "c must have the type \\[T, N, G, H\\], got \\[N, H\\]": Elementwise("add", (x, outer)),
        "unknown operation 'plus'": Elementwise("plus", (x, y)),
        "add takes 2 arguments, got 1": Elementwise("add", (x,)),
        "where expects an argument of type bool, and v\\d+ is float": Elementwise("where", (x, y, y)),
    }
    for message, operation in wrong.items():
        with pytest.raises(InvalidPass, match=rf"loop, body, operation {number}, .*{message}"):
            verify(with_line(program, number, Line(line.result, operation)))
    with pytest.raises(InvalidPass, match=rf"operation {number + 1}, .*c is defined twice"):
        verify(with_line(program, number + 1, line))
    with pytest.raises(InvalidPass, match=rf"operation {number + 1}, .*another value is called 'c'"):
        verify(with_line(program, number + 1, Line(Value(line.result.type, "c"), line.operation)))
    inputs = {Port(Role.DATA): Value(Type(("T", "N"), "half"), "x")}
    with pytest.raises(
        InvalidPass, match=r"inputs, operation 0, .*x must have .* the dtype float, bool or int, got half"
    ):
        verify(replace(program, inputs=inputs))
    carry = program.loop.carries[1]._replace(next=program.inputs[Port(Role.LENGTHS)])
    with pytest.raises(InvalidPass, match=r"carries, operation 0, .*lengths must have the type \[N, H\], got int"):
        verify(replace(program, loop=program.loop._replace(carries=(carry,))))
    with pytest.raises(InvalidPass, match=r"outputs, operation 0, .*is defined inside the loop only"):
        verify(replace(program, outputs={Port(Role.FINAL, "c"): line.result}))


def test_a_builder_rejects_invalid_operands() -> None:
    b = Builder("wrong", [Axis("T"), Axis("N"), Axis("G", (2,)), Axis("H"), Axis("2H", (2, "H"))])
    x = b.input(Port(Role.DATA), ("T", "N", "H"))
    with pytest.raises(
        ValueError, match=r"weight w: axes must be declared and in the order \['T', 'N', 'G', 'H', '2H'\]"
    ):
        b.input(Port(Role.WEIGHT, "w"), ("H", "G"))
    with pytest.raises(ValueError, match=r"axis D is not among \['T', 'N', 'H'\]"):
        b.contract(x, x, "D")
    with pytest.raises(ValueError, match=r"\['N', '2H'\] must have the factors .* of \['T', 'N', 'H'\], got"):
        b.reshape(x, ("N", "2H"))
    with pytest.raises(ValueError, match="axis G must have the extent 3 of the values, got 2"):
        b.stack([x, x, x], "G")
    with pytest.raises(ValueError, match=r"indices \[2\] must be inside axis G of extent 2"):
        b.block(b.stack([x, x], "G"), "G", 2)
