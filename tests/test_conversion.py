"""`gg.convert` and `gg.restore` keep the results, the parameters and everything else of a model."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import glassgate as gg
from tests.cases import STOCK


class Model(nn.Module):
    """A model with every kind of layer that can be replaced. Some are used twice, and one has two names."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.LSTM(3, 4, 2, dropout=0.3, bidirectional=True, proj_size=2),
                nn.GRU(4, 5, bias=False),
                nn.RNN(5, 3, 2, nonlinearity="relu", batch_first=True),
            ]
        )
        self.cells = nn.ModuleDict({"rnn": nn.RNNCell(3, 3, nonlinearity="relu"), "gru": nn.GRUCell(3, 3)})
        self.lstm = nn.LSTMCell(3, 4, bias=False)
        self.again = self.layers[1]
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers:
            x, _ = layer(x)
        h = self.cells["gru"](self.cells["rnn"](x[0]))
        return self.linear(self.lstm(h)[0])


@pytest.mark.parametrize("training", [False, True])
def test_a_model_is_converted_and_restored(training):
    model = Model().train(training)
    stock, x = copy.deepcopy(model), torch.randn(5, 2, 3)
    parameters = dict(model.named_parameters())

    def output(m):
        torch.manual_seed(5)
        return m(x)

    assert gg.convert(model) is model
    assert not any(type(part).__module__.startswith("torch.nn.modules.rnn") for part in model.modules())
    assert isinstance(model.layers[0], gg.LSTM)
    assert isinstance(model.cells["rnn"], gg.RNNCell)
    assert model.again is model.layers[1]
    assert all(dict(model.named_parameters())[name] is p for name, p in parameters.items())
    assert all(part.training is training for part in model.modules())
    torch.testing.assert_close(output(model), output(stock))

    assert gg.restore(model) is model
    assert [type(part) for part in model.modules()] == [type(part) for part in stock.modules()]
    assert all(dict(model.named_parameters())[name] is p for name, p in parameters.items())
    assert repr(model) == repr(stock)
    torch.testing.assert_close(output(model), output(stock))


@pytest.mark.parametrize("kind", STOCK)
def test_a_layer_can_be_converted_itself(kind):
    stock = STOCK[kind](3, 4)
    ours = gg.convert(stock)
    assert type(ours) is getattr(gg, kind)
    assert ours.weight_hh_l0 is stock.weight_hh_l0
    back = gg.restore(ours)
    assert type(back) is STOCK[kind]
    assert back.weight_hh_l0 is stock.weight_hh_l0
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(back(x), stock(x))


def test_an_optimizer_stays_valid():
    model = nn.Sequential(nn.LSTM(3, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    gg.convert(model)
    before = model[0].weight_ih_l0.clone()
    model(torch.randn(5, 2, 3))[0].sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight_ih_l0, before)


def test_frozen_parameters_stay_frozen():
    layer = nn.LSTM(3, 4).requires_grad_(False)
    layer.bias_hh_l0.requires_grad_(True)
    ours = gg.convert(layer)
    assert [name for name, p in ours.named_parameters() if p.requires_grad] == ["bias_hh_l0"]


def test_hooks_are_moved():
    seen = []
    model = nn.Sequential(nn.GRU(3, 4))
    model[0].register_forward_hook(lambda module, *_: seen.append(type(module)))
    gg.convert(model)(torch.randn(5, 2, 3))
    assert seen == [gg.GRU]


def test_attached_objects_are_moved():
    layer = nn.LSTM(3, 4)
    layer.register_buffer("seen", torch.ones(2))
    layer.register_buffer("scratch", torch.ones(3), persistent=False)
    layer.register_parameter("temperature", nn.Parameter(torch.ones(())))
    layer.head, layer.note, layer.probe = nn.Linear(4, 2), {"from": "a colleague"}, nn.GRU(4, 4)
    layer.head.eval()
    known, state, head = layer.note, layer.state_dict(), layer.head
    model = gg.convert(nn.Sequential(layer))
    ours = model[0]
    assert isinstance(ours, gg.LSTM)
    assert ours.note is known
    assert ours.head is head
    assert not head.training
    assert isinstance(ours.probe, gg.GRU)
    assert ours.state_dict().keys() == state.keys()
    assert dict(ours.named_buffers()).keys() == {"seen", "scratch"}
    ours.load_state_dict(state)
    back = gg.restore(model)[0]
    assert back.note is known
    assert type(back.probe) is nn.GRU
    assert back.state_dict().keys() == state.keys()
    torch.testing.assert_close(back(torch.ones(2, 3))[0], ours(torch.ones(2, 3))[0])


def test_a_module_with_two_names_in_one_parent_stays_one_object():
    model = nn.Module()
    model.encoder = model.decoder = nn.GRU(3, 3)
    model.both = nn.Sequential(model.encoder, model.encoder)
    gg.convert(model)
    assert isinstance(model.encoder, gg.GRU)
    assert model.encoder is model.decoder is model.both[0] is model.both[1]
    gg.restore(model)
    assert type(model.encoder) is nn.GRU
    assert model.encoder is model.decoder is model.both[0] is model.both[1]


def test_hooks_keep_their_options_and_handles():
    seen = []
    layer = nn.GRU(3, 4)
    handle = layer.register_forward_hook(lambda module, args, options, out: seen.append(len(options)), with_kwargs=True)
    layer.register_load_state_dict_pre_hook(lambda module, *_: seen.append(type(module)))
    layer.register_full_backward_hook(lambda module, *_: seen.append("back"))
    (ours,) = gg.convert(nn.Sequential(layer))
    del layer
    ours(torch.randn(5, 2, 3, requires_grad=True), hx=None)[0].sum().backward()
    ours.load_state_dict(ours.state_dict())
    assert seen == [1, "back", gg.GRU]
    handle.remove()
    ours(torch.randn(5, 2, 3))
    assert len(seen) == 3


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_that_a_hook_computes_are_kept():
    layer, x = nn.utils.weight_norm(nn.LSTM(3, 4), "weight_hh_l0"), torch.randn(5, 2, 3)
    expected, _ = layer(x)
    (ours,) = gg.convert(nn.Sequential(layer))
    assert isinstance(ours, gg.LSTM)
    torch.testing.assert_close(ours(x)[0], expected)
    with torch.no_grad():
        ours.weight_hh_l0_g.mul_(2)
    doubled, _ = ours(x)
    assert not torch.allclose(doubled, expected)
    torch.testing.assert_close(gg.restore(nn.Sequential(ours))[0](x)[0], doubled)


def test_a_layer_with_a_conflicting_attribute_is_kept():
    layer = nn.LSTM(3, 4)
    layer.merge = "mine"
    patched = nn.LSTM(3, 4)
    patched.forward = lambda x: "patched"
    model = gg.convert(nn.Sequential(layer, patched, nn.LSTM(3, 4)))
    assert model[0] is layer
    assert layer.merge == "mine"
    assert model[1](None) == "patched"
    assert isinstance(model[2], gg.LSTM)


def test_a_layer_with_a_conflicting_attribute_is_not_restored():
    model = nn.Sequential(gg.LSTM(3, 4), gg.GRU(3, 4))
    model[1].check_input = "mine"
    with pytest.raises(ValueError, match=r"restore: 1 cannot .* itself uses the name of the attribute 'check_input'"):
        gg.restore(model)
    assert isinstance(model[0], gg.LSTM)
    del model[1].check_input
    assert isinstance(gg.restore(model)[1], nn.GRU)


def test_only_modules_are_converted():
    with pytest.raises(TypeError, match=r"convert: model must be a torch\.nn\.Module, got list"):
        gg.convert([nn.LSTM(3, 4)])
    with pytest.raises(TypeError, match="got the class LSTM; create an object of it"):
        gg.convert(nn.LSTM)


def test_dtype_and_device_are_kept():
    assert gg.convert(nn.LSTM(3, 4, dtype=torch.float64, device="meta")).weight_ih_l0.dtype == torch.float64
    assert gg.convert(nn.LSTM(3, 4, device="meta")).weight_ih_l0.is_meta


def test_conversion_does_not_repeat_warnings():
    with pytest.warns(UserWarning, match="dropout"):
        layer = nn.LSTM(3, 4, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gg.restore(gg.convert(layer))


def test_subclasses_and_parametrized_layers_are_not_converted():
    class Own(nn.LSTM):
        pass

    own, bound = Own(3, 4), parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    model = nn.Sequential(own, bound)
    gg.convert(model)
    assert model[0] is own
    assert model[1] is bound


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of torch's quantisation
def test_verbose_lists_replaced_and_kept_layers_with_reasons(capsys):
    class Own(nn.LSTM):
        pass

    taken = nn.GRU(3, 4)
    taken.merge = "mine"
    quantised = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(3, 4)), {nn.LSTM}, dtype=torch.qint8)[0]
    bound = parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    model = nn.ModuleDict({"a": nn.LSTM(3, 4, 2), "own": Own(3, 4), "taken": taken, "quantised": quantised})
    model.update({"bound": bound, "ours": gg.GRUCell(3, 4), "again": model["a"], "linear": nn.Linear(3, 4)})
    gg.convert(model, verbose=True)
    assert capsys.readouterr().out.splitlines() == [
        "a: torch.nn.LSTM(3, 4, num_layers=2) replaced",
        "own: Own(3, 4) kept: a subclass of torch.nn.LSTM, whose own code the new layer would not run",
        "taken: torch.nn.GRU(3, 4) kept: its attribute 'merge' has a name that the new layer itself uses",
        "quantised: LSTM(3, 4) kept: a quantised module; convert the model before it is quantised, and see gg.freeze "
        "for int8",
        "bound: ParametrizedLSTM(3, 4) kept: its weights are parametrized; see "
        "torch.nn.utils.parametrize.remove_parametrizations",
        "ours: GRUCell(3, 4) kept: already a layer of glassgate",
        "again: torch.nn.LSTM(3, 4, num_layers=2) replaced",
    ]
    assert isinstance(model["a"], gg.LSTM)
    gg.convert(nn.Sequential(nn.LSTM(3, 4)))
    assert capsys.readouterr().out == ""


LACKS = {
    "hidden_size=[4, 5]": lambda: gg.LSTM(3, [4, 5], 2),
    "hidden_size=(4, 5)": lambda: gg.LSTM(3, (4, 5), bidirectional=True),
    "merge='sum'": lambda: gg.LSTM(3, 4, bidirectional=True, merge="sum"),
    "residual=True": lambda: gg.GRU(3, 4, 2, residual=True),
    "learn_initial_state=True": lambda: gg.RNN(3, 4, learn_initial_state=True),
    "zoneout=0.1": lambda: gg.LSTM(3, 4, zoneout=0.1),
    "weight_dropout=0.1": lambda: gg.LSTM(3, 4, weight_dropout=0.1),
    "proj_size for GRU": lambda: gg.GRU(3, 4, proj_size=2),
    "proj_size for RNN": lambda: gg.RNN(3, 4, proj_size=2),
    "the cell GRUv3": lambda: gg.GRU(3, 4, cell=gg.cells.GRUv3()),
    "Recurrent with the cell LSTM": lambda: gg.Recurrent(gg.cells.LSTM(), 3, 4),
}


@pytest.mark.parametrize("lack", LACKS)
def test_restore_rejects_features_that_torch_lacks(lack):
    model = nn.Sequential(gg.LSTM(3, 4), LACKS[lack]())
    with pytest.raises(ValueError) as error:  # noqa: PT011
        gg.restore(model)
    assert str(error.value) == f"restore: 1 cannot become a layer of torch.nn, which lacks {lack}"
    assert isinstance(model[0], gg.LSTM)
    with pytest.raises(ValueError, match="restore: the model cannot become a layer"):
        gg.restore(model[1])
