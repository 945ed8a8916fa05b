"""Names, options and methods that code written for the layers of `torch.nn` reads, sets or replaces."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import glassgate as gg
from glassgate.layers.opacus_rule import per_sample_gradients
from tests.cases import STOCK

OPTIONS = [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}]
X = torch.randn(5, 3, 3)


def pair(kind, *args, **options):
    """A layer of torch and a layer of this library with the same weights."""
    theirs, ours = getattr(nn, kind)(*args, **options), getattr(gg, kind)(*args, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@pytest.mark.parametrize("kind", [*STOCK, *(f"{kind}Cell" for kind in STOCK)])
def test_no_name_is_missing(kind):
    theirs, ours = pair(kind, 3, 4)
    assert not set(dir(theirs)) - set(dir(ours))
    assert not set(dir(type(theirs))) - set(dir(type(ours)))
    assert type(ours).__constants__ == type(theirs).__constants__


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_lists_of_weights(kind, options):
    theirs, ours = pair(kind, 3, 4, **options)
    assert ours._all_weights == theirs._all_weights
    assert ours._flat_weights_names == theirs._flat_weights_names
    ours.weight_hh_l0 = nn.Parameter(ours.weight_hh_l0.detach() + 1)
    for name, weight, ref in zip(ours._flat_weights_names, ours._flat_weights, ours._flat_weight_refs, strict=True):
        assert weight is getattr(ours, name) is ref()
    ours._init_flat_weights()
    ours._update_flat_weights()
    assert not ours._weights_have_changed()
    with pytest.raises(AttributeError, match=r"this list is computed .* replace a parameter, for example"):
        ours._flat_weights[0] = ours.weight_ih_l0
    with pytest.raises(AttributeError, match="_flat_weights is computed from the parameters of the layer; replace"):
        ours._flat_weights = []


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_checks_and_shapes(kind, options):
    theirs, ours = pair(kind, 3, 4, **options)
    packed = torch.randn(7, 3), torch.tensor([3, 2, 2])
    for input, sizes in ((X, None), packed):
        shape = theirs.get_expected_hidden_size(input, sizes)
        assert ours.get_expected_hidden_size(input, sizes) == shape
        state = torch.randn(shape)
        hx = (state, state) if kind == "LSTM" else state
        if kind == "LSTM":
            assert ours.get_expected_cell_size(input, sizes) == theirs.get_expected_cell_size(input, sizes)
        ours.check_forward_args(input, hx, sizes)
        for order in (torch.tensor([2, 0, 1]), None):
            torch.testing.assert_close(ours.permute_hidden(hx, order), theirs.permute_hidden(hx, order))
        small = (state, state[..., :2]) if kind == "LSTM" else state[..., :2]
        for layer in (theirs, ours):
            for bad in ((input, small, sizes), (input[..., :2], hx, sizes), (input[0], hx, sizes)):
                with pytest.raises(RuntimeError, match=r"[Ee]xpected|must have"):
                    layer.check_forward_args(*bad)
            with pytest.raises(ValueError, match=r"d?type"):
                layer.check_input(input.double(), sizes)
            with pytest.raises(RuntimeError, match="my states must be"):
                layer.check_hidden_size(state, (9, 9, 9), "my states must be {}, got {}")


def test_states_of_different_sizes_have_no_common_shape():
    with pytest.raises(gg.ShapeError, match=r"the states of hidden_size=\[4, 5\] have no common shape"):
        gg.LSTM(3, [4, 5], 2).get_expected_hidden_size(X, None)


def spy(base):
    """A subclass that records the arguments of the methods that it replaces, and shifts the final states."""

    class Spy(base):
        calls: list

        def check_forward_args(self, input, hidden, batch_sizes):
            self.calls.append(("check", input.clone(), hidden, batch_sizes))

        def permute_hidden(self, hx, permutation):
            self.calls.append(("permute", hx, permutation))
            permuted = super().permute_hidden(hx, permutation)
            return tuple(v + 1 for v in permuted) if isinstance(permuted, tuple) else permuted + 1

    return Spy


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize("given", [False, True], ids=["default states", "given states"])
@pytest.mark.parametrize("form", ["batch", "packed"])
def test_replaced_methods_are_called_as_in_torch(kind, given, form):
    theirs, ours = spy(getattr(nn, kind))(3, 4), spy(getattr(gg, kind))(3, 4)
    ours.load_state_dict(theirs.state_dict())
    state = torch.randn(1, 3, 4)
    hx = ((state, state + 1) if kind == "LSTM" else state) if given else None
    input = X if form == "batch" else pack_padded_sequence(X, torch.tensor([2, 5, 3]), enforce_sorted=False)
    for _ in range(3):  # the general path, then prepared calls
        theirs.calls, ours.calls = [], []
        expected, actual = theirs(input, hx), ours(input, hx)
        torch.testing.assert_close(actual, expected)
        if isinstance(input, PackedSequence):
            assert all(map(torch.equal, actual[0][1:], expected[0][1:]))
        # torch's LSTM checks its arguments before it permutes the states, torch's other layers afterwards.
        assert sorted(name for name, *_ in ours.calls) == sorted(name for name, *_ in theirs.calls)
        if kind != "LSTM":
            for (_, *arguments), (_, *expected_arguments) in zip(ours.calls, theirs.calls, strict=True):
                torch.testing.assert_close(arguments, expected_arguments)


def test_a_method_can_be_replaced_in_one_layer():
    layer, calls = gg.GRU(3, 4), []
    layer.check_hidden_size = lambda *args: calls.append(args)
    layer(X[:, 0], torch.zeros(1, 4))
    assert [(hx.shape, shape) for hx, shape in calls] == [((1, 1, 4), (1, 1, 4))]


@pytest.mark.parametrize("kind", STOCK)
def test_smaller_weights_with_another_hidden_size(kind):
    """`torch.ao.pruning` replaces the weights and then sets `hidden_size`."""
    theirs, ours = pair(kind, 3, 6, 2)
    keep, gates = torch.tensor([0, 1, 3, 4]), theirs.weight_hh_l0.shape[0] // 6
    rows = torch.cat([keep + 6 * gate for gate in range(gates)])
    for layer in (theirs, ours):
        layer(X)
        for name, weight in list(layer.named_parameters()):
            columns = keep if weight.dim() == 2 and weight.shape[1] == 6 else slice(None)
            setattr(layer, name, nn.Parameter(weight.detach()[rows][..., columns]))
        layer.hidden_size = np.int64(4)
    for _ in range(3):
        torch.testing.assert_close(ours(X), theirs(X))
    assert (ours.hidden_size, ours.output_size) == (4, 4)
    ours.hidden_size = 5
    with pytest.raises(gg.ShapeError, match=r"weight_ih_l0 must be \(\d+, 3\), got"):
        ours(X)


STRUCTURE = {
    "num_layers": 3, "bidirectional": True, "bias": False, "proj_size": 2, "learn_initial_state": True,
    "cell": gg.cells.PeepholeLSTM(),
}  # fmt: skip


@pytest.mark.parametrize("option", STRUCTURE)
def test_options_that_need_other_parameters_cannot_be_set(option):
    layer = gg.LSTM(3, 4, 2)
    before, text = layer(X)[0], repr(layer)
    with pytest.raises(AttributeError, match=rf"LSTM: {option}=.* needs other parameters than .* create a new layer"):
        setattr(layer, option, STRUCTURE[option])
    setattr(layer, option, getattr(layer, option))
    assert repr(layer) == text
    torch.testing.assert_close(layer(X)[0], before)


def test_other_options_take_effect():
    theirs, ours = pair("LSTM", 3, 4, 2)
    for layer in (theirs, ours):
        layer(X)
        layer.batch_first, layer.dropout = True, 1.0
    torch.testing.assert_close(ours(X), theirs(X))
    ours.zoneout = 1.0
    assert not ours(X)[0].any()
    with pytest.raises(ValueError, match="zoneout must be a rate, or one per state"):
        ours.zoneout = (0.5,)
    assert ours.zoneout == 1.0
    relu, layer = pair("RNN", 3, 4, nonlinearity="relu")
    layer.cell = gg.cells.RNN("tanh")
    layer.num_directions, layer.mode = 1, "RNN_TANH"
    assert not torch.allclose(layer(X)[0], relu(X)[0])
    layer.cell = gg.cells.RNN("relu")
    torch.testing.assert_close(layer(X), relu(X))
    assert layer.mode == relu.mode
    for name, value in {"mode": "RNN_TANH", "nonlinearity": "tanh", "num_directions": 2}.items():
        with pytest.raises(AttributeError, match=f"RNN: {name} is .*; for .*, (assign another cell|create a layer)"):
            setattr(layer, name, value)


LAYERS = [
    {"num_layers": np.int64(2), "dropout": np.float32(0.5)},
    {"bidirectional": 1},
    {"bidirectional": None},
    {"bidirectional": np.True_, "bias": np.False_},
    {"input_size": np.int64(3), "hidden_size": np.int32(4), "proj_size": np.int64(2)},
    {"proj_size": False},
]


@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_layers_accept_numbers_of_other_types(options):
    """`torch.nn` accepts these too, except NumPy's integers as sizes and NumPy's bools as `bias`."""
    options = {"input_size": 3, "hidden_size": 4, "bidirectional": False} | options
    plain = {
        name: None if value is None else getattr(value, "item", lambda v=value: v)() for name, value in options.items()
    }
    plain["bidirectional"] = bool(plain["bidirectional"])
    stock, layer = nn.LSTM(**plain).eval(), gg.LSTM(**options).eval()
    layer.load_state_dict(stock.state_dict())
    torch.testing.assert_close(layer(X), stock(X))
    assert repr(gg.restore(layer)) == repr(stock).replace("proj_size=False, ", "")


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize("sizes", [(0, 4), (3, 0), (np.int64(3), np.int64(4))], ids=str)
@pytest.mark.parametrize("bias", [1, 0, None, np.True_], ids=str)
def test_cells_accept_the_types_of_torch(kind, sizes, bias):
    """`torch.nn` checks neither the sizes nor the bias of a cell."""
    layers = []
    for library in (nn, gg):
        torch.manual_seed(0)
        layers.append(getattr(library, f"{kind}Cell")(*sizes, bias=bias))
    stock, cell = layers
    x = torch.randn(2, int(sizes[0]))
    for input in (x, x[0]):
        torch.testing.assert_close(cell(input), stock(input))
    expected = stock(x)
    torch.testing.assert_close(gg.convert(stock)(x), expected)


@pytest.mark.parametrize(
    "module",
    [
        SimpleNamespace(),
        SimpleNamespace(GradSampleModule=None, GradSampleHooks=SimpleNamespace()),
        SimpleNamespace(GradSampleModule=SimpleNamespace(GRAD_SAMPLERS=())),
        None,
    ],
    ids=["empty", "no table", "another table", "absent"],
)
def test_any_version_of_opacus_leaves_layers_intact(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus.grad_sample.grad_sample_module", module)
    assert gg.LSTM(3, 4)(X)[0].shape == (5, 3, 4)


@pytest.mark.parametrize("names", [("GradSampleModule",), ("GradSampleModule", "GradSampleHooks")], ids=["1.5", "1.6"])
def test_the_rule_is_in_each_table_of_opacus(names, monkeypatch):
    tables = {name: {} for name in names}
    module = SimpleNamespace(**{name: SimpleNamespace(GRAD_SAMPLERS=table) for name, table in tables.items()})
    monkeypatch.setitem(sys.modules, "opacus.grad_sample.grad_sample_module", module)
    layer = gg.LSTM(3, 4)
    assert all(table == {type(layer): per_sample_gradients} for table in tables.values())


def test_calls_that_opacus_cannot_differentiate_are_rejected(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", SimpleNamespace())
    layer = gg.GRU(3, 4)
    with pytest.raises(RuntimeError, match="GRU: per-sample gradients need a call with the input alone, got 2 tensors"):
        per_sample_gradients(layer, [X, X], X)
    for weight in layer.parameters():
        weight._forward_counter = 0  # as in a model that Opacus wraps
    layer(X)
    with pytest.raises(RuntimeError, match=r"GRU: Opacus passes only the input .* mask the loss at padded steps"):
        layer(X, lengths=[5, 2, 1])
    layer.eval()(X, lengths=[5, 2, 1])


@pytest.mark.parametrize("layer", [gg.LSTM(3, 4, batch_first=True), gg.LSTMCell(3, 4)], ids=["layer", "cell"])
def test_expanded_weights_are_rejected_with_a_remedy(layer):
    with pytest.raises(RuntimeError, match=r"got the tensor subclass ExpandedWeight; .* use torch.func.vmap"):
        call_for_per_sample_grads(layer)(X if isinstance(layer, gg.LSTM) else X[0])
