"""Cells: the definitions that a subclass may have, the values that a step reads, and the parameters."""

import pytest
import torch

import glassgate as gg
from glassgate.cell import Named, PreActivations, RecurrentTerm
from tests.compare import check, noise


def test_values_can_be_read_by_name():
    s = Named(("h", "c"), (1, 2))
    assert (s.h, s.c, list(s)) == (1, 2, [1, 2])
    with pytest.raises(AttributeError, match="'x' is not defined here, only h, c"):
        _ = s.x
    with pytest.raises(AttributeError, match="'x' is not defined here, only nothing"):
        _ = Named((), ()).x


def test_pre_activations_have_an_input_term_and_a_recurrent_term():
    a = PreActivations(Named(("i", "n"), (1, 2)), RecurrentTerm(lambda u: Named(("i", "n"), (10 * u, 100 * u)), 3))
    assert (a.ih.n, a.hh.n, a.n, a.i, a.hh(7).i) == (2, 300, 302, 31, 70)
    assert a.update("g") == "g"
    with pytest.raises(AttributeError, match="'q' is not defined here, only i, n"):
        _ = a.q


def test_the_recurrent_product_is_computed_once_and_only_if_read():
    calls = []
    a = PreActivations(Named("in", (1, 2)), RecurrentTerm(lambda u: calls.append(u) or Named("in", (u, u)), 5))
    assert a.ih.i == 1
    assert not calls
    assert a.i + a.n == 13
    assert calls == [5]


def test_pre_activations_without_recurrent_weights():
    assert PreActivations(Named("i", (1,)), None).i == 1


WRONG = {
    "gates must be a tuple of names, got 'ifgo'": (TypeError, {"gates": "ifgo"}),
    "gates must be a tuple of names, got ('1',)": (TypeError, {"gates": ("1",)}),
    "state must be a tuple of names, got ['h']": (TypeError, {"state": ["h"]}),
    "gates must be distinct and neither 'ih' nor 'hh', got ('i', 'i')": (ValueError, {"gates": ("i", "i")}),
    "gates must be distinct and neither 'ih' nor 'hh', got ('ih',)": (ValueError, {"gates": ("ih",)}),
    "a gate cannot be called 'update', because a.update has another meaning in a step, got ('i', 'update')": (
        ValueError,
        {"gates": ("i", "update")},
    ),
    "a gate cannot be called 'noise', because a.noise has another meaning in a step, got ('noise',)": (
        ValueError,
        {"gates": ("noise",)},
    ),
    "state must not begin with two underscores, got ('__iter__',)": (ValueError, {"state": ("__iter__",)}),
    "state must name at least the output, got ()": (ValueError, {"state": ()}),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_definitions_are_rejected(message):
    kind, body = WRONG[message]
    with pytest.raises(kind) as error:
        type("Mine", (gg.Cell,), body)
    assert str(error.value) == f"cell Mine: {message}"


class Bare(gg.Cell):
    gates = ("n",)


class Short(gg.Cell):
    gates = ("n",)
    state = ("h", "c")

    def step(self, a, s):
        return a.n


def with_step(parameters, step):
    return type("Mine", (gg.Cell,), {"gates": ("n",), "parameters": parameters, "step": step})()


@pytest.mark.parametrize(
    ("parameters", "step", "message"),
    [
        ({}, lambda self, a: a.n, r"step must be step\(self, a, s\), got step\(self, a\)"),
        (
            {"gain": gg.Parameter()},
            lambda self, a, s: a.n,
            r"step must be step\(self, a, s, p\), since the cell has parameters, got step\(self, a, s\)",
        ),
        (
            {"gain": 1.0},
            lambda self, a, s, p: a.n,
            r"a dict of names and glassgate.Parameter, such as .* got {'gain': 1.0}",
        ),
        (("gain",), lambda self, a, s, p: a.n, r"a dict of names and glassgate.Parameter, such as .* got \('gain',\)"),
    ],
)
def test_wrong_steps_and_parameters_are_rejected(parameters, step, message):
    with pytest.raises(TypeError, match=f"cell Mine: .*{message}"):
        gg.Recurrent(with_step(parameters, step), 2, 3)(torch.zeros(1, 1, 2))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"noise": {"xi": 0.1}}, r"noise must be a dict of names and glassgate.cell.Noise, such as .* got {'xi': 0.1}"),
        ({"noise": 0.1}, "noise must be a dict of names and glassgate.cell.Noise, such as .* got 0.1"),
        (
            {"noise": {"xi": gg.cell.Noise(state="S")}},
            r"noise must have the shape of one of \('h',\), got state='S'",
        ),
        ({"inputs": ("x",)}, r"inputs must be a dict, such as {'x': \('features',\), 'time': \(\)}, got \('x',\)"),
        ({"delays": ("old",)}, r"delays must be a dict, such as {'old': \('h', 5\)}, got \('old',\)"),
    ],
)
def test_wrong_declarations_are_rejected(declared, message):
    with pytest.raises((TypeError, ValueError), match=f"cell Mine: {message}"):
        gg.Recurrent(type("Mine", (gg.cells.RNN,), declared)(), 2, 3)


def test_parameters_outside_of_the_layer_are_reported():
    cell = with_step({}, lambda self, a, s: torch.tanh(a.n))
    cell.table, cell.fixed = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).requires_grad_(False)
    with pytest.warns(
        UserWarning, match="cell Mine: the layer does not train or move the .* attribute 'table'; declare"
    ):
        gg.Recurrent(cell, 2, 3)
    del cell.table
    gg.Recurrent(cell, 2, 3)


class TestCustomCells:
    """Cells with features that torch.nn lacks, each compared with its equations in plain torch."""

    x, h, c = noise(1, 3, 2), noise(2, 3, 4), noise(3, 3, 4)

    def run(self, cell, *states):
        layer = gg.RecurrentCell(cell, 2, 4, dtype=torch.float64)
        for k, weight in enumerate(layer.parameters()):
            weight.data = noise(10 + k, *weight.shape)
        new = layer(self.x, states if len(states) > 1 else states[0])
        ih = self.x @ layer.weight_ih.T + (layer.bias_ih if layer.bias else 0)
        return layer, ih, new

    def test_parameters_per_unit_and_per_gate(self):
        class Own(gg.Cell):
            gates = ("i", "n")
            state = ("h", "c")
            parameters = {"peep": gg.Parameter(0.5), "gain": gg.Parameter(2.0, per_gate=True)}

            def step(self, a, s, p):
                c = torch.sigmoid(p.gain.i * a.i + p.peep * s.c) * torch.tanh(p.gain.n * a.n)
                return c + s.h, c

        layer, ih, (h, c) = self.run(Own(), self.h, self.c)
        i, n = (ih + self.h @ layer.weight_hh.T + layer.bias_hh).chunk(2, -1)
        gain_i, gain_n = layer.gain.chunk(2)
        expected = torch.sigmoid(gain_i * i + layer.peep * self.c) * torch.tanh(gain_n * n)
        check({"h": h.detach(), "c": c.detach()}, {"h": (expected + self.h).detach(), "c": expected.detach()})
        layer.reset_parameters()
        assert layer.peep.tolist() == [0.5] * 4
        assert layer.gain.tolist() == [2.0] * 8
        assert list(layer.state_dict()) == ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "peep", "gain"]

    def test_a_cell_without_recurrent_weights(self):
        class Own(gg.Cell):
            gates = ("f", "n")
            recurrent = False

            def step(self, a, s):
                f = torch.sigmoid(a.f)
                return f * s.h + (1 - f) * a.n

        layer, ih, h = self.run(Own(), self.h)
        f, n = ih.chunk(2, -1)
        check({"h": h.detach()}, {"h": (torch.sigmoid(f) * self.h + (1 - torch.sigmoid(f)) * n).detach()})
        assert list(layer.state_dict()) == ["weight_ih", "bias_ih"]

    def test_heads_are_diagonal_blocks(self):
        class Own(gg.Cell):
            gates = ("a", "b")
            heads = 2

            def step(self, a, s):
                return torch.tanh(a.a) * a.b

        layer, ih, h = self.run(Own(), self.h)
        assert layer.weight_hh.shape == (8, 2)
        rows = [torch.block_diag(*gate.chunk(2)) for gate in layer.weight_hh.chunk(2)]
        a, b = (ih + self.h @ torch.cat(rows).T + layer.bias_hh).chunk(2, -1)
        check({"h": h.detach()}, {"h": (torch.tanh(a) * b).detach()})
        with pytest.raises(ValueError, match="GRU: sizes must be multiples of the cell's 2 heads, got 5"):
            gg.GRU(3, 5, cell=Own())
        with pytest.raises(ValueError, match="RecurrentCell: sizes must be multiples of the cell's 2 heads, got 5"):
            gg.RecurrentCell(Own(), 3, 5)

    def test_project_acts_after_the_projection(self):
        class Clipped(gg.cells.LSTM):
            def project(self, h):
                return h.clamp(-0.01, 0.01)

        plain = gg.LSTM(2, 4, proj_size=3)
        clipped = gg.LSTM(2, 4, proj_size=3, cell=Clipped())
        clipped.load_state_dict(plain.state_dict())
        x = torch.randn(1, 5, 2)
        torch.testing.assert_close(clipped(x)[0], plain(x)[0].clamp(-0.01, 0.01))

    @pytest.mark.filterwarnings("ignore:cell Second")
    def test_a_second_recurrent_product_needs_the_projected_width(self):
        class Second(gg.Cell):
            gates = ("x", "z")
            state = ("h", "c")

            def step(self, a, s):
                return torch.tanh(a.x + a.hh(s.c).z), s.c

        with pytest.raises(
            gg.ShapeError, match=r"cell Second: .* h is the projected output, 3 wide, and a.hh\(u\) needs"
        ):
            gg.Recurrent(Second(), 2, 4, proj_size=3)(torch.randn(1, 5, 2))

    @pytest.mark.parametrize("start", [torch.ones(4), [1.0, 2.0], "one", None])
    def test_the_initial_value_of_a_parameter_is_one_number(self, start):
        with pytest.raises(TypeError, match=r"Parameter: the initial value must be a number, got .* that you pass to"):
            gg.Parameter(start)
        assert gg.Parameter(torch.tensor(1.0)).start == 1.0

    def test_a_missing_step_and_missing_states_are_rejected(self):
        with pytest.raises(NotImplementedError, match=r"cell Bare must define step\(self, a, s\)"):
            self.run(Bare(), self.h)
        with pytest.raises(ValueError, match=r"cell Short: step must return 2 states \('h', 'c'\), got 1"):
            self.run(Short(), self.h, self.c)

    @pytest.mark.parametrize(
        ("returned", "error", "message"),
        [
            (lambda a, s: None, TypeError, "must return a tensor for state 'h', got NoneType"),
            (lambda a, s: {"h": a.a}, TypeError, r"must return a tuple of the states \('h',\), got a dict"),
            (
                lambda a, s: a.a.mean(-1, keepdim=True),
                gg.ShapeError,
                r"must return one number per unit for state 'h', \(3, 4\), got \(3, 1\)",
            ),
        ],
    )
    def test_a_step_that_does_not_return_states_is_rejected(self, returned, error, message):
        cell = type("Odd", (gg.Cell,), {"gates": ("a",), "step": lambda self, a, s: returned(a, s)})()
        with gg.engine("reference"), pytest.raises(error, match=f"cell Odd: step {message}"):
            gg.Recurrent(cell, 2, 4)(torch.randn(5, 3, 2))

    @pytest.mark.parametrize(
        ("read_name", "recurrent", "message"),
        [
            (lambda a, s: a.q, True, "'q' is not defined here, only a"),
            (lambda a, s: a.a * s.c, True, "'c' is not defined here, only h"),
            (lambda a, s: a.hh.a, False, "'hh' is not defined here: with recurrent = False nothing is multiplied"),
        ],
    )
    @pytest.mark.parametrize("options", [{}, {"zoneout": 0.5}])
    @pytest.mark.parametrize("engine", ["reference", "cpu"])
    def test_a_step_that_reads_an_unknown_name_is_rejected(self, engine, options, read_name, recurrent, message):
        body = {"gates": ("a",), "recurrent": recurrent, "step": lambda self, a, s: read_name(a, s)}
        layer = gg.Recurrent(type("Odd", (gg.Cell,), body)(), 2, 4, **options)
        with gg.engine(engine), pytest.raises(AttributeError, match=f"cell Odd: {message}"):
            layer(torch.randn(5, 3, 2))

    def test_a_step_can_return_a_list(self):
        cell = type("Listed", (gg.cells.LSTM,), {"step": lambda self, a, s: list(gg.cells.LSTM.step(self, a, s))})()
        layer, plain = gg.LSTM(2, 4, cell=cell), gg.LSTM(2, 4)
        layer.load_state_dict(plain.state_dict())
        x = torch.randn(5, 3, 2)
        assert torch.equal(layer(x)[0], plain(x)[0])

    def test_a_cell_without_gates_is_rejected(self):
        with pytest.raises(ValueError, match=r"cell None_: gates must name at least one gate, got \(\)"):
            gg.Recurrent(type("None_", (gg.Cell,), {"step": lambda self, a, s: s.h})(), 2, 4)


SHAPES = {
    (): ["weight_ih (12, 2)", "weight_hh (12, 4)", "bias_ih (12,)", "bias_hh (12,)"],
    (0, False): ["weight_ih (12, 2)", "weight_hh (12, 4)"],
    (3,): ["weight_ih (12, 2)", "weight_hh (12, 3)", "bias_ih (12,)", "bias_hh (12,)", "weight_hr (3, 4)"],
}


@pytest.mark.parametrize("options", SHAPES)
def test_parameters_are_in_the_order_of_torch(options):
    shapes = gg.cells.GRU().shapes(2, 4, *options)
    assert [f"{name} {shape}" for name, shape in shapes.items()] == SHAPES[options]


def test_options_are_the_arguments_of_the_constructor():
    assert gg.cells.RNN("relu").options() == {"nonlinearity": "relu"}
    assert repr(gg.cells.RNN()) == "RNN(nonlinearity='tanh')"
    assert repr(gg.cells.LSTM()) == "LSTM()"


def test_parameters_cannot_have_the_names_of_a_layers_parameters():
    class Mine(gg.Cell):
        gates = ("x",)
        parameters = {"weight_hr": gg.Parameter()}

        def step(self, a, s, p):
            return torch.tanh(a.x) * p.weight_hr

    with pytest.raises(ValueError, match=r"cell Mine: parameters must have other names than \['weight_hr'\]"):
        gg.Recurrent(Mine(), 3, 4)
