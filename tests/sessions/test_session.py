"""Sessions give the results of their modules in every form of call, and clear error messages."""

import copy
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import glassgate as gg
from glassgate.sessions import session as sessions
from tests.compare import check, noise

LAYERS = {
    "lstm": lambda **kw: gg.LSTM(5, 7, 2, bidirectional=True, **kw),
    "gru": lambda **kw: gg.GRU(5, 9, batch_first=True, **kw),
    "projected": lambda **kw: gg.LSTM(5, 7, 2, proj_size=3, **kw),
    "residual": lambda **kw: gg.RNN(5, 5, 3, residual=True, learn_initial_state=True, **kw),
    "summed": lambda **kw: gg.GRU(5, 6, 2, bidirectional=True, merge="sum", residual=True, **kw),
    "mean": lambda **kw: gg.LSTM(5, 6, 2, bidirectional=True, merge="mean", batch_first=True, **kw),
    "apart": lambda **kw: gg.LSTM(5, (4, 6), 2, bidirectional=True, merge="none", **kw),
    "norm": lambda **kw: gg.Recurrent(gg.cells.LayerNormLSTM(), 5, 7, **kw),
    "minimal": lambda **kw: gg.Recurrent(gg.cells.MinGRU(), 5, 7, **kw),
    "zoneout": lambda **kw: gg.LSTM(5, 7, zoneout=(0.2, 0.4), **kw),
    "narrow": lambda **kw: gg.GRU(3, 9, 2, bidirectional=True, **kw),
    "narrow norm": lambda **kw: gg.Recurrent(gg.cells.LayerNormLSTM(), 1, 7, **kw),
}


class Cumulative(gg.Cell):
    """A cell that no kernel can express."""

    gates, state = ("z",), ("h",)

    def step(self, a, s):
        return torch.cumsum(s.h * a.z, -1)


def made(kind: str, scale: float = 1.0, **options) -> gg.Recurrent:
    """Create a layer in eval mode with random weights and learned states."""
    layer = LAYERS[kind](**options).eval()
    with torch.no_grad():
        for k, parameter in enumerate(layer.parameters()):
            parameter.copy_(noise(k, *parameter.shape) * scale / 7**0.5)
    return layer


def flat(result) -> dict[str, Tensor]:
    """Return all tensors in the result of a call."""
    tensors: dict[str, Tensor] = {}

    def take(value, name):
        if isinstance(value, Tensor):
            tensors[name] = value.detach()
        elif isinstance(value, dict):
            tensors.update({k: v.detach() for k, v in value.items()})
        else:
            for k, each in enumerate(value):
                take(each, f"{name}.{k}")

    take(result, "result")
    return tensors


@pytest.mark.parametrize("kind", LAYERS)
def test_a_session_equals_its_layer_in_every_form_of_call(kind):
    layer = made(kind, dtype=torch.float64)
    session, N, L = gg.freeze(layer), 4, 6
    form = (N, L) if layer.batch_first else (L, N)
    x = noise(50, *form, layer.input_size)
    with torch.no_grad():
        _, hx = layer(x)
    resets, lengths = noise(51, *form) > 0.5, [6, 0, 3, 1]
    calls = [
        ((x,), {}),
        ((x, hx), {}),
        ((x[:, 0] if not layer.batch_first else x[0],), {}),
        ((x, hx), {"lengths": lengths}),
        ((x, hx), {"lengths": torch.tensor(lengths), "resets": resets}),
        ((x,), {"resets": resets}),
        ((x, hx), {"resets": resets, "restart": hx}),
        ((x, hx), {"return_states": True}),
    ]
    with gg.engine("reference"):
        expected = [flat(layer(*args, **kwargs)) for args, kwargs in calls]
    for (args, kwargs), truth in zip(calls, expected, strict=True):
        for _ in range(2):
            got = session(*args, **kwargs)
            check(flat(got), truth)
            assert not any(v.requires_grad for v in flat(got).values())


@pytest.mark.parametrize("kind", ["lstm", "projected", "apart"])
def test_a_session_has_the_attributes_of_its_layer(kind):
    layer = made(kind)
    frozen = gg.freeze(layer).module
    for name in (
        "input_size",
        "num_layers",
        "num_directions",
        "bidirectional",
        "batch_first",
        "proj_size",
        "output_size",
    ):
        assert getattr(frozen, name) == getattr(layer, name), name
    assert frozen.hidden_size == (7 if kind != "apart" else layer.glassgate.hidden_sizes)
    with pytest.raises(AttributeError, match="has no attribute 'dropout'"):
        _ = frozen.dropout


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e3])
def test_float32_is_as_exact_as_the_reference_on_badly_scaled_input(scale):
    layer, x = made("lstm"), noise(60, 9, 3, 5) * scale
    x[:, :, 0] *= 1e4
    with gg.engine("reference"):
        eager, truth = flat(layer(x.float())), flat(made("lstm", dtype=torch.float64)(x))
    check(flat(gg.freeze(layer)(x.float())), truth, eager)


def test_packed_sequences_and_half_precision():
    layer = made("lstm", dtype=torch.bfloat16)
    session = gg.freeze(layer)
    x = noise(1, 5, 3, 5).bfloat16()
    packed = pack_padded_sequence(x, [5, 4, 2])
    output, (h_n, _) = session(packed)
    expected, (h, _) = made("lstm", dtype=torch.float32)(packed._replace(data=packed.data.float()))
    assert output.data.dtype == h_n.dtype == torch.bfloat16
    torch.testing.assert_close(output.data.float(), expected.data, atol=0.02, rtol=0)
    torch.testing.assert_close(h_n.float(), h, atol=0.02, rtol=0)


class Tagger(nn.Module):
    """A model with other modules and a recurrent layer that is used twice."""

    def __init__(self, layer) -> None:
        super().__init__()
        self.embed, self.drop, self.layer, self.out = nn.Embedding(11, 5), nn.Dropout(0.5), layer, nn.Linear(14, 3)

    def forward(self, tokens, lengths=None):
        return self.out(self.layer(self.drop(self.embed(tokens)), **({"lengths": lengths} if lengths else {}))[0])


@pytest.mark.parametrize(
    "layer", [lambda: gg.LSTM(5, 7, bidirectional=True), lambda: nn.LSTM(5, 7, bidirectional=True)]
)
def test_a_session_of_a_model_equals_the_model(layer, tmp_path):
    model, tokens = Tagger(layer()).eval(), torch.arange(12).view(6, 2) % 11
    session, expected = gg.freeze(model), model(tokens)
    torch.testing.assert_close(session(tokens), expected.detach())
    assert not session(tokens).requires_grad
    session.save(tmp_path / "tagger.safetensors")
    loaded = gg.load_session(tmp_path / "tagger.safetensors", Tagger(layer()))
    assert torch.equal(loaded(tokens), session(tokens))
    with pytest.raises(ValueError, match=r"a session of the model Tagger, .* pass an instance: .*model=Tagger"):
        gg.load_session(tmp_path / "tagger.safetensors")
    with pytest.raises(ValueError, match=r"model must have the recurrent layers \['layer'\], got Linear with \[\]"):
        gg.load_session(tmp_path / "tagger.safetensors", nn.Linear(2, 3))
    with pytest.raises(ValueError, match=r"model does not fit the file: Error"):
        gg.load_session(tmp_path / "tagger.safetensors", nn.ModuleDict({"layer": layer(), "other": nn.Linear(2, 3)}))


def test_weights_are_copied_until_refresh():
    model, tokens = Tagger(gg.LSTM(5, 7, bidirectional=True)).eval(), torch.arange(4).view(2, 2)
    session = gg.freeze(model)
    clone, before = session.clone(), session(tokens)
    assert clone.module is session.module
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    assert torch.equal(session(tokens), before)
    session.refresh()
    torch.testing.assert_close(session(tokens), model(tokens).detach())
    assert torch.equal(clone(tokens), before)


def test_a_cell_without_kernel_runs_on_the_reference(tmp_path):
    layer = gg.Recurrent(Cumulative(), 3, 4).eval()
    with pytest.warns(UserWarning, match=r"it runs on the reference engine"):
        expected = layer(x := noise(0, 5, 2, 3).float())[0].detach()
    session = gg.freeze(layer)
    torch.testing.assert_close(session(x)[0], expected)
    torch.testing.assert_close(session.stream(2).step(x[0]), expected[0])
    torch.testing.assert_close(session.stream(2).run(x), expected)
    with pytest.raises(ValueError, match=r"the cell Cumulative runs on the reference engine, .* state_dict instead"):
        session.save(tmp_path / "cumulative.safetensors")
    with pytest.raises(gg.EngineError, match=r"precision='bfloat16' needs the kernels of engine 'cpu'"):
        gg.freeze(layer, "bfloat16")
    with (
        pytest.raises(gg.EngineError, match=r"engine 'cpu' cannot run .* the kernels of engine 'cpu': "),
        gg.engine("cpu"),
    ):
        gg.freeze(layer)


def test_a_named_engine_runs_the_session_or_raises():
    layer, x = made("lstm"), noise(0, 4, 2, 5).float()
    for name in ("cpu", "reference"):
        with gg.engine(name):
            torch.testing.assert_close(gg.freeze(layer)(x)[0], layer(x)[0].detach())
    for create in (gg.freeze, gg.LSTM.stream):
        with pytest.raises(gg.EngineError, match=r"'torch' cannot run .* it cannot run one step"), gg.engine("torch"):
            create(layer)


def test_threads_can_share_a_session():
    layer = made("lstm")
    session = gg.freeze(layer)
    inputs = [noise(k, 3 + k % 5, 1 + k % 4, 5).float() for k in range(24)]
    ragged = [[max(0, len(x) - n) for n in range(x.shape[1])] for x in inputs]
    expected = [(layer(x)[0].detach(), layer(x, lengths=n)[0].detach()) for x, n in zip(inputs, ragged, strict=True)]
    start = threading.Barrier(4)

    def work(thread: int) -> float:
        worst, stream = 0.0, gg.freeze(made("projected")).stream(1) if thread == 0 else None
        start.wait()
        for k in range(120):
            k = (k * (thread + 1)) % len(inputs)
            x, n = inputs[k], ragged[k]
            got = (session if thread % 2 else session.clone())(x)[0], session(x, lengths=n)[0]
            worst = max(worst, *((a - b).abs().max().item() for a, b in zip(got, expected[k], strict=True)))
            if stream is not None:
                stream.step(x[0, :1])
        return worst

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(4))) < 1e-6


def test_streams_of_a_session_equal_its_results():
    layer = made("residual", dtype=torch.float64)
    session, x = gg.freeze(layer, compile_for=[(1, 2)]), noise(3, 6, 2, 5)
    stream = session.stream(2)
    steps = torch.stack([stream.step(x_t).clone() for x_t in x])
    check({"output": steps}, {"output": layer(x)[0].detach()})
    stream.reset()
    blocks = [stream.run(part).clone() for part in x.split([2, 3, 1])]
    check({"output": torch.cat(blocks)}, {"output": layer(x)[0].detach()})
    torch.testing.assert_close(stream.run(x[:2]), layer(torch.cat([x, x[:2]]))[0][-2:].detach())
    layer.load_state_dict({name: 0.5 * value for name, value in layer.state_dict().items()})
    session.refresh()
    stream.refresh()
    stream.reset()
    check({"output": stream.run(x)}, {"output": layer(x)[0].detach()})
    with pytest.raises(gg.ShapeError, match=r"Stream: x must be \(L, N, H_in\) = \(3, 2, 5\), got \(3, 5, 2\)"):
        stream.run(x[:3].transpose(1, 2))
    with pytest.raises(TypeError, match=r"only a session of one layer runs step by step, .* freeze the layer itself"):
        gg.freeze(nn.Sequential(layer)).stream(2)


def test_copies_are_rejected_with_the_remedy():
    session = gg.freeze(gg.GRU(2, 3).eval())
    with pytest.raises(TypeError, match=r"use session\.clone\(\) or session\.save\(path\)"):
        pickle.dumps(session)
    stream, x = session.stream(1), torch.randn(2, 1, 2)
    with pytest.raises(TypeError, match=r"make another one, and copy the tensors of stream\.states into it"):
        copy.deepcopy(stream)
    stream.step(x[0])
    other = session.stream(1)
    for state, value in zip(other.states[0], stream.states[0], strict=True):
        state.copy_(value)
    assert torch.equal(other.step(x[1]), stream.step(x[1]))


def test_a_saved_session_gives_the_same_bits(tmp_path):
    for kind in ("lstm", "apart", "residual", "gru"):
        layer = made(kind)
        session, path = gg.freeze(layer), tmp_path / kind / "session.safetensors"
        session.save(path)
        loaded, x = gg.load_session(path), noise(5, 4, 3, 5).float()
        assert all(map(torch.equal, flat(loaded(x)).values(), flat(session(x)).values()))
        assert [*path.parent.iterdir()] == [path]
        with pytest.raises(RuntimeError, match=r"this session was loaded from a file and has no module"):
            loaded.refresh()
        loaded.save(tmp_path / "again.safetensors")
        assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_another_processor_packs_again(tmp_path):
    from glassgate.engines.llvm_cpu.processor import Processor, host, pretend

    session, x = gg.freeze(made("lstm")), noise(5, 4, 3, 5).float()
    session.save(tmp_path / "lstm.safetensors")
    with pretend(Processor(16, host().registers)):
        other = gg.load_session(tmp_path / "lstm.safetensors")(x)[0]
    torch.testing.assert_close(other, session(x)[0])


def test_files_without_a_session_are_rejected(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "gru.safetensors"
    gg.freeze(made("gru")).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"expected a session file, got a truncated or different file"):
        gg.load_session(path)
    path.write_bytes(whole.replace(rb"\"format\": 1", rb"\"format\": 7", 1))
    with pytest.raises(ValueError, match=r"expected a session in format 1, got format 7, .* save the session again"):
        gg.load_session(path)
    path.write_bytes(whole.replace(rb"\"input_size\": 5", rb"\"input_size\": 8", 1))
    with pytest.raises(ValueError, match=r"cannot be read .*weight_ih_l0 must be .* = \(27, 8\), got \(27, 5\)"):
        gg.load_session(path)
    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"got a safetensors file without a session's description"):
        gg.load_session(path)
    for layers in ({}, {"encoder": {}}):
        content = {"format": 1, "model": None, "precision": None, "layers": layers}
        save_file({"w": torch.zeros(2)}, path, {"glassgate_session": json.dumps(content)})
        with pytest.raises(
            ValueError, match=r"description cannot be read .*(one layer without a name, got the layers|Key)"
        ):
            gg.load_session(path)
    save_file({"w": torch.zeros(2)}, path, {"glassgate_session": "{"})
    with pytest.raises(ValueError, match=r"its description is not valid JSON"):
        gg.load_session(path)
    with pytest.raises(FileNotFoundError, match=r"the session file does not exist"):
        gg.load_session(tmp_path / "none.safetensors")


def test_a_failed_save_keeps_the_former_file(tmp_path, monkeypatch):
    path, session = tmp_path / "gru.safetensors", gg.freeze(made("gru"))
    session.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match=r"disk full"):
        session.save(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_every_dropout_and_batch_norm_of_torch_is_known():
    noisy = (*sessions._DROPOUTS, *sessions._NORMALIZATIONS)
    bases = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    classes = [each for each in vars(nn).values() if isinstance(each, type) and issubclass(each, bases)]
    assert len(classes) > 10
    assert [each for each in classes if not issubclass(each, (*noisy, nn.modules.lazy.LazyModuleMixin))] == []


def test_wrong_arguments_are_rejected():
    with pytest.raises(TypeError, match=r"module must be a layer or a model, a torch.nn.Module, got int"):
        gg.freeze(3)
    with pytest.raises(ValueError, match=r"Linear has no recurrent layer; a session has at least one"):
        gg.freeze(nn.Linear(2, 3))
    taken = nn.LSTM(3, 4)
    taken.cell = "mine"
    with pytest.raises(
        ValueError, match=r"freeze: LSTM\(3, 4\) has attributes whose names glassgate.LSTM needs; rename them"
    ):
        gg.freeze(taken)
    with pytest.raises(ValueError, match=r"LSTM is in training mode with dropout=0.5, .* call model.eval\(\) first"):
        gg.freeze(gg.LSTM(3, 4, 2, dropout=0.5))
    with pytest.raises(ValueError, match=r"LSTM is in training mode with zoneout=0.1"):
        gg.freeze(gg.LSTM(3, 4, zoneout=0.1))
    with pytest.raises(ValueError, match=r"Dropout 'drop' is in training mode with p=0.5"):
        gg.freeze(Tagger(gg.LSTM(5, 7)))
    with pytest.raises(ValueError, match=r"BatchNorm1d '1' is in training mode"):
        gg.freeze(nn.Sequential(gg.LSTM(5, 7), nn.BatchNorm1d(7)))
    with pytest.raises(ValueError, match=r"sessions run on the CPU, and LSTM is on meta"):
        gg.freeze(gg.LSTM(3, 4, device="meta"))
    with pytest.raises(ValueError, match=r"precision must be one of .*, got 'int3'"):
        gg.freeze(gg.LSTM(3, 4), "int3")
    with pytest.raises(ValueError, match=r"compile_for needs a single layer, got Sequential"):
        gg.freeze(nn.Sequential(gg.LSTM(3, 4)), compile_for=[(1, 1)])
    layer = gg.LSTM(3, 4)
    with (
        gg.edit(layer, {"layer0.forward.f": gg.hold(1.0)}),
        pytest.raises(ValueError, match=r"streams and sessions do not support edits; leave the `with gg.edit"),
    ):
        gg.freeze(layer)
    session = gg.freeze(layer)
    with pytest.raises(gg.ShapeError, match=r"input must have H_in = input_size = 3 features, got 5"):
        session(torch.zeros(2, 1, 5))
    with pytest.raises(gg.ShapeError, match=r"input must have the layer's dtype torch.float32, got torch.float64"):
        session(torch.zeros(2, 1, 3, dtype=torch.float64))
    with pytest.raises(gg.ShapeError, match=r"h_0 must be .* = \(1, 1, 4\), got \(1, 2, 4\)"):
        session(torch.zeros(2, 1, 3), (torch.zeros(1, 2, 4), torch.zeros(1, 1, 4)))
    with pytest.raises(
        TypeError, match=r"LSTM: restart sets the states after a reset, so it must be given with resets"
    ):
        session(torch.zeros(2, 1, 3), restart=(torch.zeros(1, 1, 4), torch.zeros(1, 1, 4)))
    with pytest.raises(RuntimeError, match=r"a session cannot be traced, compiled or transformed"):
        torch.func.vmap(session)(torch.zeros(2, 2, 1, 3))
