"""Layers as modules: names and weights as in `torch.nn`, copies, files, replicas, parametrizations, other devices."""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations

import glassgate as gg
from tests.cases import STOCK

CONSTRUCTIONS = [
    (3, 4),
    (3, 4, 2, False),
    (3, 4, 2, True, True, 0.5, True),
]
FULL = {"bidirectional": True, "num_layers": 2, "learn_initial_state": True, "residual": True}


@pytest.mark.parametrize("arguments", CONSTRUCTIONS)
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_the_same_seed_gives_the_weights_of_torch_with_positional_arguments(kind, arguments):
    torch.manual_seed(0)
    stock = STOCK[kind](*arguments)
    torch.manual_seed(0)
    ours = getattr(gg, kind)(*arguments)
    same_state(ours, stock)
    assert repr(ours).removesuffix(")") == repr(stock).removesuffix(")")
    for name in ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"):
        assert getattr(ours, name) == getattr(stock, name)


@pytest.mark.parametrize("arguments", [(3, 4, 2, "relu", False), (3, 4, 1, "tanh", True, True)])
def test_the_fourth_argument_of_rnn_is_the_nonlinearity(arguments):
    torch.manual_seed(0)
    stock = nn.RNN(*arguments)
    torch.manual_seed(0)
    ours = gg.RNN(*arguments)
    same_state(ours, stock)
    assert (ours.mode, ours.nonlinearity) == (stock.mode, stock.nonlinearity)
    assert ours.bias == stock.bias
    assert ours.batch_first == stock.batch_first


@pytest.mark.parametrize("kind", STOCK)
def test_the_same_seed_gives_the_cell_weights_of_torch(kind):
    torch.manual_seed(0)
    stock = getattr(nn, f"{kind}Cell")(3, 4)
    torch.manual_seed(0)
    same_state(getattr(gg, f"{kind}Cell")(3, 4), stock)


@pytest.mark.parametrize("bidirectional", [0, 1])
def test_bidirectional_accepts_numbers_as_in_torch(bidirectional):
    ours, stock = gg.LSTM(3, 4, bidirectional=bidirectional), nn.LSTM(3, 4, bidirectional=bidirectional)
    ours.load_state_dict(stock.state_dict())
    assert repr(ours) == repr(gg.LSTM(3, 4, bidirectional=bool(bidirectional)))


@pytest.mark.parametrize("kind", STOCK)
def test_flat_weights_equal_those_of_torch(kind):
    ours = getattr(gg, kind)(3, 4, 2, bidirectional=True)
    stock = gg.restore(ours)
    assert all(a is b for a, b in zip(ours._flat_weights, stock._flat_weights, strict=True))
    with pytest.raises(AttributeError, match="_flat_weights"):
        ours._flat_weights = []  # cannot be set, because kernels do not read it


def test_projection_weights_have_the_names_and_values_of_torch():
    torch.manual_seed(0)
    stock = nn.LSTM(3, 5, 2, bidirectional=True, proj_size=2)
    torch.manual_seed(0)
    ours = gg.LSTM(3, 5, 2, bidirectional=True, proj_size=2)
    same_state(ours, stock)
    assert [[tuple(w.shape) for w in ws] for ws in ours.all_weights] == [
        [tuple(w.shape) for w in ws] for ws in stock.all_weights
    ]


def same_state(ours, stock):
    assert list(ours.state_dict()) == list(stock.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), stock.parameters(), strict=True))
    stock.load_state_dict(ours.state_dict(), strict=True)
    ours.load_state_dict(stock.state_dict(), strict=True)


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("make", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v)), saved])
@pytest.mark.parametrize(
    "layer",
    [
        gg.LSTM(3, [(4, 5), 6], **FULL, init=[gg.init.xavier_orthogonal, gg.init.gate_bias(f=2.0)]),
        gg.GRU(3, 4, zoneout=0.1, recurrent_dropout=0.2, init=gg.init.chrono(10)),
        gg.Recurrent(gg.cells.RNN("relu"), 3, 4, bidirectional=True, merge="mean"),
    ],
    ids=["LSTM", "GRU", "Recurrent"],
)
def test_copies_are_independent(layer, make):
    twin, x = make(layer).eval(), torch.randn(5, 2, 3)
    before = layer.eval()(x)[0]
    assert torch.equal(twin(x)[0], before)
    with torch.no_grad():
        twin.weight_ih_l0.add_(1)
    assert torch.equal(layer(x)[0], before)
    assert not torch.equal(twin(x)[0], before)
    twin.reset_parameters()
    assert repr(twin) == repr(layer)


def test_processes_share_the_memory_of_parameters():
    layer = gg.LSTM(3, 4, **FULL).share_memory()
    assert all(p.is_shared() for p in layer.parameters())
    assert layer(torch.randn(5, 2, 3))[0].shape == (5, 2, 8)


@pytest.mark.parametrize("kind", STOCK)
def test_replicas_read_their_own_weights(engine, kind):
    """In a replica of `torch.nn.parallel.replicate`, which needs GPUs, weights are attributes and not parameters."""
    layer, x = getattr(gg, kind)(3, 4, 2, bidirectional=True), torch.randn(5, 2, 3)
    replica = layer._replicate_for_data_parallel()
    for name, parameter in layer.named_parameters():
        setattr(replica, name, parameter * 1)
    assert not list(replica.parameters())
    output, _ = replica(x)
    assert torch.equal(output, layer(x)[0])
    output.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    setattr(replica, "weight_ih_l0", layer.weight_ih_l0 + 1)  # noqa: B010
    assert not torch.equal(replica(x)[0], output)


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize("name", ["weight_hh_l0", "weight_ih_l1_reverse"])
@pytest.mark.parametrize("how", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_parametrized_weights(engine, kind, name, how):
    layer, x = getattr(gg, kind)(3, 4, 2, bidirectional=True, dtype=torch.float64), torch.randn(5, 2, 3).double()
    how(layer, name).eval()
    plain = getattr(gg, kind)(3, 4, 2, bidirectional=True, dtype=torch.float64)
    plain.load_state_dict({n: getattr(layer, n) for n in plain.state_dict()}, strict=True)
    output, _ = layer(x)
    torch.testing.assert_close(output, plain(x)[0], rtol=0, atol=1e-12)
    output.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_orthogonal_weight_stays_orthogonal_in_training():
    layer = parametrizations.orthogonal(gg.RNN(3, 4), "weight_hh_l0")
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    start = layer.weight_hh_l0.detach()
    layer(torch.randn(5, 2, 3))[0].square().sum().backward()
    optimizer.step()
    after = layer.weight_hh_l0
    assert not torch.allclose(after, start)
    torch.testing.assert_close(after @ after.T, torch.eye(4), rtol=0, atol=1e-5)


def test_parametrized_layer_shows_its_cell():
    layer = parametrizations.weight_norm(gg.Recurrent(gg.cells.GRUv3(), 3, 4), "weight_hh_l0")
    assert "GRUv3(), 3, 4" in repr(layer)
    assert "cell=GRU" not in repr(parametrizations.weight_norm(gg.GRU(3, 4), "weight_hh_l0"))


def test_functional_call_uses_the_given_weights(engine):
    layer, x = gg.LSTM(3, 4), torch.randn(5, 2, 3)
    zeros = {name: torch.zeros_like(p) for name, p in layer.named_parameters()}
    assert not functional_call(layer, zeros, (x,))[0].any()
    assert layer(x)[0].any()


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"proj_size": 2},
        {"learn_initial_state": True},
        {"init": gg.init.xavier_orthogonal},
        {"init": gg.init.gate_bias()},
    ],
)
def test_meta_device(kind, options):
    layer = getattr(gg, kind)(3, 4, 2, bidirectional=True, device="meta", **options)
    assert all(p.is_meta for p in layer.parameters())
    width = 2 * (layer.proj_size or 4)
    assert layer(torch.empty(5, 2, 3, device="meta"))[0].shape == (5, 2, width)
    layer.to_empty(device="cpu").reset_parameters()
    assert layer(torch.randn(5, 2, 3))[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("kind", STOCK)
def test_a_layer_moves_to_another_dtype(engine, kind, dtype):
    layer = getattr(gg, kind)(3, 4, learn_initial_state=True).to(dtype)
    output, final = layer(torch.randn(5, 2, 3, dtype=dtype), lengths=[5, 2])
    assert output.dtype == dtype
    assert all(v.dtype == dtype for v in (final if isinstance(final, tuple) else (final,)))
    output.sum().backward()
    assert all(p.grad.dtype == dtype for p in layer.parameters())


@pytest.mark.parametrize("kind", STOCK)
def test_symbolic_trace_has_one_node_per_call(kind):
    """A node contains the initial states and the keyword arguments of the call."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.cell = getattr(gg, kind)(3, 4), getattr(gg, f"{kind}Cell")(4, 4)

        def forward(self, x, lengths):
            _, hx = self.layer(x)
            output, _ = self.layer(x, hx, lengths=lengths)
            return self.cell(output[0])

    model, x, lengths = Model(), torch.randn(5, 2, 3), torch.tensor([5, 3])
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["layer", "layer", "cell"]
    torch.testing.assert_close(traced(x, lengths), model(x, lengths), rtol=0, atol=0)


def test_a_layer_has_a_training_mode_and_no_children():
    layer = gg.LSTM(3, 4)
    assert layer.training
    assert not layer.eval().training
    assert list(layer.children()) == []
    assert layer.flatten_parameters() is None


REPRS = {
    "LSTM(3, 4)": lambda: gg.LSTM(3, 4),
    "GRU(3, (4, 5), num_layers=2, bidirectional=True, merge='none')": lambda: gg.GRU(
        3, (4, 5), 2, bidirectional=True, merge="none"
    ),
    "RNN(3, [4, 5], num_layers=2, bias=False, batch_first=True, dropout=0.5, residual=True)": lambda: gg.RNN(
        3, [4, 5], 2, bias=False, batch_first=True, dropout=0.5, residual=True
    ),
    "LSTM(3, 4, proj_size=2, learn_initial_state=True)": lambda: gg.LSTM(3, 4, proj_size=2, learn_initial_state=True),
    "Recurrent(RNN(nonlinearity='relu'), 3, 4)": lambda: gg.Recurrent(gg.cells.RNN("relu"), 3, 4),
    "LSTMCell(3, 4)": lambda: gg.LSTMCell(3, 4),
    "GRUCell(3, 4, bias=False)": lambda: gg.GRUCell(3, 4, bias=False),
    "RecurrentCell(GRUv3(), 3, 4)": lambda: gg.RecurrentCell(gg.cells.GRUv3(), 3, 4),
    "LSTM(3, 4, zoneout=0.1, weight_dropout=0.5)": lambda: gg.LSTM(3, 4, zoneout=0.1, weight_dropout=0.5),
    "GRU(3, 4, cell=GRUv3())": lambda: gg.GRU(3, 4, cell=gg.cells.GRUv3()),
    "RNN(3, 4, nonlinearity='relu')": lambda: gg.RNN(3, 4, nonlinearity="relu"),
    "RNNCell(3, 4, nonlinearity='relu')": lambda: gg.RNNCell(3, 4, nonlinearity="relu"),
}


@pytest.mark.parametrize("text", REPRS)
def test_repr_shows_changed_options(text):
    assert repr(REPRS[text]()) == text


class TestShapesAndValues:
    def test_bidirectional_shapes(self, engine):
        output, (h_n, c_n) = gg.LSTM(8, 16, bidirectional=True)(torch.randn(3, 5, 8))
        assert (output.shape, h_n.shape, c_n.shape) == ((3, 5, 32), (2, 5, 16), (2, 5, 16))

    def test_bidirectional_batch_first_shapes(self, engine):
        output, (h_n, c_n) = gg.LSTM(8, 16, batch_first=True, bidirectional=True)(torch.randn(3, 5, 8))
        assert (output.shape, h_n.shape, c_n.shape) == ((3, 5, 32), (2, 3, 16), (2, 3, 16))

    @pytest.mark.parametrize("proj_size", [0, 3])
    def test_lstm_equals_a_manual_computation(self, engine, proj_size):
        stock = nn.LSTM(4, 5, batch_first=True, proj_size=proj_size, dtype=torch.float64)
        x = torch.randn(2, 3, 4, dtype=torch.float64)
        h_0 = torch.randn(2, proj_size or 5, dtype=torch.float64)
        c_0 = torch.randn(2, 5, dtype=torch.float64)
        output, (h_n, c_n) = gg.functional.lstm(x, (h_0, c_0), *stock.parameters(), batch_first=True)
        expected, (h, c) = stock(x, (h_0[None], c_0[None]))
        torch.testing.assert_close((output, h_n[None], c_n[None]), (expected, h, c), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_help_shows_the_whole_signature_and_the_shapes(kind):
    ours, theirs = getattr(gg, kind), getattr(torch.nn, kind)
    shown = inspect.signature(ours).parameters
    of_recurrent = inspect.signature(gg.Recurrent).parameters
    assert set(shown) == {*of_recurrent, *({"nonlinearity"} if kind == "RNN" else ())}
    assert all(shown[name].default == of_recurrent[name].default for name in of_recurrent if name != "cell")
    positional = [name for name, each in shown.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    layer = theirs(3, 4, 1, *(["relu"] if kind == "RNN" else []), False, True)
    assert positional[:2] == ["input_size", "hidden_size"]
    ours_layer = ours(3, 4, 1, *(["relu"] if kind == "RNN" else []), False, True)
    assert (ours_layer.bias, ours_layer.batch_first) == (layer.bias, layer.batch_first)
    for text in (
        "zoneout: the probability that a unit keeps",
        "h_n: like hx",
        "hidden_size: the number of units, H_cell",
    ):
        assert text in ours.__doc__


INTERNAL = (
    "parts", "edits", "watchers", "class_name", "training_cell", "eval_cell", "hidden_sizes", "current_cell", "plain",
    "arrange_call", "levels", "default_states", "weights_of", "checked_weights", "is_observed",
    "prepared_calls", "changed_options", "default_cell", "_run", "_computed", "_run_layer", "_repeated",
    "_invalidating",
)  # fmt: skip
"""Names of internal data and functions of layers, now or in earlier versions."""


class WithAttributes(gg.LSTM):
    """A subclass that sets attributes with the names of internal data."""

    def __init__(self, make_value, *args, **options):
        super().__init__(*args, **options)
        for name in INTERNAL:
            setattr(self, name, make_value(name))


@pytest.mark.parametrize(
    "make_value", [lambda _: nn.Linear(2, 2), str, lambda _: None, lambda _: nn.Parameter(torch.zeros(1))]
)
def test_subclasses_can_use_the_names_of_internal_data(make_value):
    layer, stock = WithAttributes(make_value, 3, 4, 2, dropout=0.25), nn.LSTM(3, 4, 2, dropout=0.25)
    missing, _ = layer.load_state_dict(stock.state_dict(), strict=False)
    assert set(missing) <= {name for name, _ in layer.named_parameters()} - set(stock.state_dict())
    x = torch.randn(5, 2, 3)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(3):  # the general path, then prepared calls
        optimizer.zero_grad()
        layer(x)[0].sum().backward()
        optimizer.step()
    assert not torch.equal(layer.weight_hh_l0, stock.weight_hh_l0)
    layer.eval()
    expected, _ = layer(x)
    with gg.record(layer) as tape:
        torch.testing.assert_close(layer(x)[0], expected)
    torch.testing.assert_close(tape["layer1.forward.h"], expected)
    with gg.edit(layer, {"layer1.forward.o": gg.hold(0.0)}):
        assert not layer(x)[0].any()
    stream = layer.stream(2)
    torch.testing.assert_close(torch.stack([stream.step(x_t).clone() for x_t in x]), expected)
    torch.testing.assert_close(gg.freeze(layer)(x)[0], expected)
    assert [len(weights) for weights in layer.all_weights] == [4, 4]
    assert repr(layer).startswith("WithAttributes(")
    layer.dropout = 0.5
    assert "dropout=0.5" in repr(copy.deepcopy(layer))
    for name in INTERNAL:
        assert type(getattr(layer, name)) is type(make_value(name)), name


@pytest.mark.parametrize("name", ["merge", "dropout", "cell", "num_directions"])
def test_a_module_cannot_replace_an_option(name):
    layer, x = gg.LSTM(3, 4, 2), torch.randn(5, 2, 3)
    expected, _ = layer(x)
    with pytest.raises(TypeError, match=f"LSTM: `{name}` is an attribute of LSTM; give this Linear another name"):
        setattr(layer, name, nn.Linear(2, 2))
    torch.testing.assert_close(layer(x)[0], expected)
