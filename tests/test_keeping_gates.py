"""The gates that keep states: half-lives after initialisation, for every built-in cell and for cells with other names.

A half-life is measured from outputs: a state is moved a little, and the difference of the outputs decays.
"""

import math
import string

import pytest
import torch
from torch import sigmoid, tanh
from torch.nn import functional as F

import glassgate as gg
from glassgate import init

STEPS, UNITS = 100, 40


def cell(gates, state, step, **attributes):
    """A cell from a function (a, s) or (a, s, p)."""
    return type("Custom", (gg.Cell,), {"gates": tuple(gates), "state": tuple(state), "step": step, **attributes})()


def lstm(keep, write, candidate, output):
    """An LSTM with other letters for its gates and states."""

    def step(self, a, s):
        k, w = sigmoid(getattr(a, keep)), sigmoid(getattr(a, write))
        v = k * s.v + w * tanh(getattr(a, candidate))
        return sigmoid(getattr(a, output)) * tanh(v), v

    return cell((candidate, keep, output, write), ("y", "v"), step)


def second_state(self, a, s):
    k, w = sigmoid(a.k), sigmoid(a.w)
    u = k * s.u + w * tanh(a.g)
    v = k * s.v + w * tanh(a.n)
    return u + v, u, v


def one_of_two_states(self, a, s):
    k = sigmoid(a.k)
    fast = 0.5 * s.fast + 0.5 * tanh(a.g)
    slow = k * s.slow + (1 - k) * fast
    return slow + fast, fast, slow


def normalised_keep(self, a, s, p):
    k = F.softplus(a.k - a.k.mean(-1, keepdim=True)) * 0 + sigmoid(a.k - a.k.mean(-1, keepdim=True) + p.extra.k)
    return k * s.h + (1 - k) * tanh(a.g)


CUSTOM = {
    "keep i, write f": lstm("i", "f", "z", "c"),
    "keep o, write c": lstm("o", "c", "f", "i"),
    "1 - gate": cell("fn", "h", lambda self, a, s: (1 - sigmoid(a.f)) * s.h + sigmoid(a.f) * tanh(a.n)),
    "sigmoid(-a)": cell("ig", "q", lambda self, a, s: sigmoid(-a.i) * s.q + sigmoid(a.i) * tanh(a.g)),
    "product of two gates": cell(
        "abg", "h", lambda self, a, s: sigmoid(a.a) * sigmoid(a.b) * s.h + (1 - sigmoid(a.a) * sigmoid(a.b)) * tanh(a.g)
    ),
    "mean of two gates": cell("pqg", "h", lambda self, a, s: (sigmoid(a.p) + sigmoid(a.q)) / 2 * s.h + 0.1 * tanh(a.g)),
    "product of opposite gates": cell(
        "abg", "h", lambda self, a, s: sigmoid(a.a) * (1 - sigmoid(a.b)) * s.h + sigmoid(a.b) * tanh(a.g)
    ),
    "two states, one gate": cell("kwgn", ("y", "u", "v"), second_state),
    "one of two states": cell("kg", ("y", "fast", "slow"), one_of_two_states),
    "exponential": cell("dx", "h", lambda self, a, s: torch.exp(-F.softplus(a.d)) * s.h + tanh(a.x)),
    "hard sigmoid": cell("kg", "h", lambda self, a, s: F.hardsigmoid(a.k) * s.h + (1 - F.hardsigmoid(a.k)) * tanh(a.g)),
    "bias of one inside": cell(
        "kg", "h", lambda self, a, s: sigmoid(a.k + 1) * s.h + (1 - sigmoid(a.k + 1)) * tanh(a.g)
    ),
    "half of a tanh": cell("kg", "h", lambda self, a, s: (1 + tanh(a.k)) / 2 * s.h + (1 - tanh(a.k)) / 2 * tanh(a.g)),
    "normalised": cell("kg", "h", normalised_keep, parameters={"extra": gg.Parameter(0.0, per_gate=True)}),
    "recurrent half": cell("kg", "h", lambda self, a, s: sigmoid(a.hh.k) * s.h + sigmoid(-a.hh.k) * tanh(a.ih.g)),
    "lerp": cell("kg", "h", lambda self, a, s: torch.lerp(s.h, tanh(a.g), sigmoid(a.k))),
}
GATED = {name: made for name in gg.cells.__all__ if init.keeping_gates(made := getattr(gg.cells, name)())}
WITHOUT_GATE = sorted({*gg.cells.__all__} - GATED.keys())


def half_lives(layer):
    """The half-lives of all units at zero input without recurrent weights, by state, in float64.

    A state is moved by a small number, and the half-life is that of the difference after 1 to 21 further steps.
    """
    layer, names = layer.double().eval(), layer.cell.state
    with torch.no_grad(), gg.engine("reference"):
        for name, parameter in layer.named_parameters():
            if name.startswith("weight"):
                parameter.zero_()
        as_hx = tuple if len(names) > 1 else lambda states: states[0]
        rows = len(names) + 1
        final = layer(torch.zeros(3, rows, layer.input_size).double())[1]
        states = [value.clone() for value in (final if isinstance(final, tuple) else (final,))]
        for k, value in enumerate(states):
            value[:, k + 1] += 1e-4  # row 0 is not moved
        *_, by_step = layer(torch.zeros(21, rows, layer.input_size).double(), as_hx(states), return_states=True)
    result = {}
    for k, name in enumerate(names):
        values = by_step[f"layer0.forward.{name}"]
        difference = (values[:, k + 1] - values[:, 0]).abs()
        if bool((difference[0] > 1e-9).all()):
            result[name] = 20 * math.log(0.5) / (difference[-1] / difference[0]).log()
    return result


def assert_keeps(layer, states=None):
    """Check that half-lives are spread over the values for u from 1 to T_max - 1, for all kept states."""
    measured = half_lives(layer)
    for state in states or measured:
        values = measured[state]
        assert 1 - 1e-6 <= values.min() < 12
        assert 50 < values.max() <= math.log(0.5) / math.log(1 - 1 / STEPS) + 1e-6
        assert 20 < values.median() < 50
    return measured


@pytest.mark.parametrize("name", [*GATED, *CUSTOM])
def test_units_keep_their_state_for_up_to_the_given_number_of_steps(name):
    torch.manual_seed(0)
    layer = gg.Recurrent({**GATED, **CUSTOM}[name], 2, UNITS, init=init.chrono(STEPS))
    assert_keeps(layer, ["slow"] if name == "one of two states" else None)


def test_long_memory_keeps_states_too():
    assert_keeps(gg.Recurrent(gg.cells.MGU(), 2, UNITS, init=init.long_memory(STEPS)))


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bidirectional": True}, {"proj_size": 7}])
def test_all_layers_and_directions_are_initialised(options):
    layer = gg.Recurrent(CUSTOM["keep i, write f"], 2, UNITS, init=init.chrono(STEPS), **options)
    names = [name for name, _ in layer.named_parameters() if name.startswith("bias_ih")]
    assert len(names) == layer.num_layers * layer.num_directions
    for name in names:
        z, i, c, f = layer.get_parameter(name).chunk(4)
        assert (i >= 0).all()
        assert 3 < i.max() < math.log(STEPS)
        assert torch.equal(f, -i)
        assert not z.any()
        assert not c.any()


@pytest.mark.parametrize("scheme", [init.chrono(STEPS), init.long_memory(STEPS), init.xavier_orthogonal])
def test_letters_have_no_meaning(scheme):
    """An LSTM with any letters gets the values of `gg.LSTM`."""
    torch.manual_seed(0)
    expected = dict(zip("ifgo", gg.LSTM(2, UNITS, init=scheme).bias_ih_l0.chunk(4), strict=True))
    for letters in ("ifgo", "fiog", "zhcf", "ogif", string.ascii_lowercase[9:13]):
        write, keep, candidate, output = letters
        made = lstm(keep, write, candidate, output)
        torch.manual_seed(0)
        biases = dict(zip(made.gates, gg.Recurrent(made, 2, UNITS, init=scheme).bias_ih_l0.chunk(4), strict=True))
        for gate, letter in zip("ifgo", letters, strict=True):
            assert torch.equal(biases[letter], expected[gate])


def test_the_forget_bias_of_xavier_orthogonal_keeps_more():
    """Gates that also scale the update of the state have none."""
    for name, made in {**GATED, **CUSTOM}.items():
        layer = gg.Recurrent(made, 2, 3, init=init.xavier_orthogonal)
        numbers = {
            (parameter, gate): value.unique().tolist()
            for parameter in dict.fromkeys(p for gate in init.keeping_gates(made) for p in gate.parameters)
            for gate, value in zip(
                made.gates, layer.get_parameter(f"{parameter}_l0").chunk(len(made.gates)), strict=True
            )
        }
        biased = {gate: value for (_, gate), value in numbers.items() if value != [0.0]}
        signs = {gate.name: [float(gate.sign)] for gate in init.keeping_gates(made)}
        assert biased.items() <= signs.items(), name
        if name in GATED:
            assert bool(biased) == ("LSTM" in name and name != "MinLSTM"), name


@pytest.mark.parametrize("name", WITHOUT_GATE)
def test_a_cell_without_a_keeping_gate_is_refused(name):
    made = getattr(gg.cells, name)()
    assert init.keeping_gates(made) == ()
    for scheme in (init.chrono(9), init.long_memory(9)):
        with pytest.raises(ValueError, match=rf"must have a gate whose bias sets .* got {name} with the gates"):
            gg.Recurrent(made, 2, 3, init=scheme)
    gg.Recurrent(made, 2, 3, init=init.xavier_orthogonal)


REFUSED = {
    "chrono: 100 steps need a gate that can keep 0.5 to 0.99 of a state per step, and k of Custom can keep "
    "1.74e-22 to 0.9; use fewer steps, or set the biases with gg.init.gate_bias": cell(
        "kg", "h", lambda self, a, s: 0.9 * sigmoid(a.k) * s.h + tanh(a.g)
    ),
    "chrono: a bias of gate k of Custom keeps one state longer and another one less long; set the biases with "
    "gg.init.gate_bias": cell(
        "kg", "hq", lambda self, a, s: (sigmoid(a.k) * s.h + tanh(a.g), sigmoid(-a.k) * s.q + tanh(a.g))
    ),
    "chrono: the biases of the gates k of Custom also change other units, for example through a layer "
    "normalisation; declare a parameter per gate that is added to the pre-activation": cell(
        "kg", "h", lambda self, a, s: (k := sigmoid(a.k - a.k.mean(-1, keepdim=True))) * s.h + (1 - k) * tanh(a.g)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_chrono_refuses_gates_that_it_cannot_set(message):
    layer = gg.Recurrent(REFUSED[message], 2, 3)
    before = [parameter.clone() for parameter in layer.parameters()]
    with pytest.raises(ValueError, match="chrono") as error:
        init.chrono(STEPS)(layer)
    assert str(error.value) == message
    assert all(map(torch.equal, before, layer.parameters()))


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := sigmoid(x))
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d):
        (y,) = ctx.saved_tensors
        return d * y * (1 - y)


def test_steps_that_kernels_cannot_run_are_derived_too_unless_they_have_no_second_derivative():
    def with_indexing(self, a, s):
        k = sigmoid(a.i.flip(-1).flip(-1))
        return k * s.h + (1 - k) * tanh(a.g)

    assert_keeps(gg.Recurrent(cell("gi", "h", with_indexing), 2, UNITS, init=init.chrono(STEPS)))
    opaque = cell("kg", "h", lambda self, a, s: Once.apply(a.k) * Once.apply(s.h) + tanh(a.g))
    for scheme in (init.chrono(9), init.xavier_orthogonal, init.long_memory(9)):
        with pytest.raises(ValueError, match=r"cannot be derived from cell Custom.*gg\.init\.gate_bias"):
            gg.Recurrent(opaque, 2, 3, init=scheme)


def test_a_step_that_runs_only_with_the_units_of_the_layer_is_derived():
    made = cell("kg", "h", lambda self, a, s: sigmoid(a.k) * s.h + (1 - sigmoid(a.k)) * tanh(a.g) * self.mask)
    made.mask = torch.ones(UNITS)
    assert_keeps(gg.Recurrent(made, 2, UNITS, init=init.chrono(STEPS)))
    assert [gate.name for gate in init.keeping_gates(made, UNITS)] == ["k"]


def test_a_derivation_ignores_modes_and_leaves_random_numbers_alone():
    expected = init.keeping_gates(gg.cells.LSTM())
    torch.manual_seed(0)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
        assert init.keeping_gates(gg.cells.LSTM()) == expected
    after = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3), after)
    with torch.device("meta"):
        assert gg.Recurrent(gg.cells.ActivatedLSTM(), 2, 3, init=init.chrono(9)).bias_ih_l0.is_meta
