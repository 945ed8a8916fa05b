"""A recording equals a loop in plain torch: gates, states and their gradients, on every engine."""

import gc
import weakref
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import glassgate as gg

L, N, D, H = 6, 3, 4, 5


def by_hand(layer, x, hx):
    """Compute the gates and states of an LSTM at every step, as tensors that retain their gradients."""
    h, c = hx
    values = {name: [] for name in "ifgohc"}
    for x_t in x:
        rows = x_t @ layer.weight_ih_l0.T + layer.bias_ih_l0 + h @ layer.weight_hh_l0.T + layer.bias_hh_l0
        i, f, g, o = rows.chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        for name, value in zip("ifgohc", (i, f, g, o, h, c), strict=True):
            value.retain_grad()
            values[name].append(value)
    return values


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_recording_equals_a_manual_loop(engine):
    torch.manual_seed(0)
    layer = gg.LSTM(D, H, dtype=torch.float64)
    x = torch.randn(L, N, D, dtype=torch.float64)
    hx = torch.randn(N, H, dtype=torch.float64), torch.randn(N, H, dtype=torch.float64)
    weight = torch.randn(L, N, H, dtype=torch.float64)
    with gg.engine(engine), gg.record(layer) as tape:
        output, (_, c_n) = layer(x, (hx[0][None], hx[1][None]))
    ((output * weight).sum() + c_n.square().sum()).backward()
    values = by_hand(layer, x, hx)
    ((torch.stack(values["h"]) * weight).sum() + values["c"][-1].square().sum()).backward()
    assert set(tape) == {f"layer0.forward.{name}" for name in "ifgohc"}
    for name, steps in values.items():
        torch.testing.assert_close(tape[f"layer0.forward.{name}"], torch.stack(steps), atol=1e-12, rtol=0)
        reached = torch.stack([v.grad for v in steps])
        torch.testing.assert_close(tape.grad[f"layer0.forward.{name}"], reached, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn", "paper", "projected", "zoneout"])
@pytest.mark.parametrize("form", ["padded", "lengths", "packed", "resets"])
def test_kernel_and_reference_record_the_same(kind, form):
    torch.manual_seed(1)
    options = {"bidirectional": True, "num_layers": 2, "dtype": torch.float64}
    layer = {
        "lstm": lambda: gg.LSTM(D, H, **options),
        "gru": lambda: gg.GRU(D, (H, 7), **options),
        "rnn": lambda: gg.RNN(D, H, **options),
        "paper": lambda: gg.Recurrent(gg.cells.GRUv3(), D, H, **options),
        "projected": lambda: gg.LSTM(D, H, proj_size=2, **options),
        "zoneout": lambda: gg.GRU(D, H, zoneout=0.3, **options),
    }[kind]()
    x = torch.randn(L, N, D, dtype=torch.float64)
    lengths = torch.tensor([4, L, 1])
    given = {
        "padded": lambda: layer(x),
        "lengths": lambda: layer(x, lengths=lengths),
        "packed": lambda: layer(pack_padded_sequence(x, lengths, enforce_sorted=False)),
        "resets": lambda: layer(x, resets=torch.arange(L * N).view(L, N) % 4 == 1),
    }[form]

    def shown(engine):
        torch.manual_seed(2)
        layer.zero_grad()
        with gg.engine(engine), gg.record(layer) as tape:
            output, _ = given()
        data = output.data if form == "packed" else output
        (data * torch.randn(data.shape, dtype=torch.float64)).sum().backward()
        return dict(tape), dict(tape.grad)

    ours, reference = shown("cpu"), shown("reference")
    for a, b in zip(ours, reference, strict=True):
        assert a.keys() == b.keys()
        assert len(a) == 4 * len({name.rsplit(".")[-1] for name in a})
        for name in a:
            torch.testing.assert_close(a[name], b[name], atol=1e-11, rtol=0, msg=name)


def test_a_recording_is_freed_without_the_garbage_collector():
    layer, x = gg.LSTM(D, H), torch.randn(L, N, D)
    gc.disable()
    try:
        for _ in range(3):
            with gg.record(layer) as tape:
                output, (h_n, _) = layer(x)
            (output.sum() + h_n.sum()).backward()
            seen = [weakref.ref(tape), weakref.ref(output), weakref.ref(tape.grad["layer0.forward.c"])]
            assert tape.steps_with_gradient("layer0.forward").all()
            del tape, output, h_n, _
            assert [ref() for ref in seen] == [None] * 3
    finally:
        gc.enable()


def test_a_backward_pass_skips_the_gradient_of_an_input_that_requires_none():
    layer, x = gg.LSTM(D, H, num_layers=2, bidirectional=True), torch.randn(L, N, D)
    for _ in range(3):
        with gg.record(layer) as tape:
            output, _ = layer(x)
        output[-1, 0].sum().backward(retain_graph=True)
        assert tape.first_call().source.grad is None
        target = layer.weight_ih_l0.grad.clone()
        layer.zero_grad()
        leaf = x.clone().requires_grad_()
        layer(leaf)[0][-1, 0].sum().backward()
        torch.testing.assert_close(layer.weight_ih_l0.grad, target)
        torch.testing.assert_close(
            tape.connectivity(output[-1, 0].sum()), (leaf.grad * x).sum(-1), atol=1e-6, rtol=1e-4
        )
        layer.zero_grad()


class UnnamedGates(gg.Cell):
    """A cell in which only gate `w` has a name, one value per row and unit, and an effect on the new state."""

    gates = ("row", "alike", "half", "dead", "w", "both")
    parameters = {"k": gg.Parameter(0.5)}

    def step(self, a, s, p):
        row = a.row.mean(-1, keepdim=True)
        alike = 2 * p.k
        dead = torch.tanh(a.dead)  # noqa: F841
        w = torch.sigmoid(a.w)
        return w * s.h + torch.tanh(a.ih.half - a.row + row * alike + a.alike + a.ih.both * a.hh.both)


def test_engines_record_the_same_gates():
    layer, x = gg.Recurrent(UnnamedGates(), D, H, dtype=torch.float64), torch.randn(L, N, D, dtype=torch.float64)
    tapes = []
    for engine in ("cpu", "reference"):
        with gg.engine(engine), gg.record(layer) as tape:
            output, _ = layer(x)
        assert not tape.grad
        output.sum().backward(retain_graph=True)
        once = {name: grad.clone() for name, grad in tape.grad.items()}
        output.sum().backward()
        shown = [f"layer0.forward.{name}" for name in ("row", "alike", "half", "w", "both", "h")]
        assert list(tape) == list(tape.grad) == shown
        for name, grad in tape.grad.items():
            torch.testing.assert_close(grad, 2 * once[name])
        tapes.append([*tape.values(), *tape.grad.values()])
    torch.testing.assert_close(*tapes, atol=1e-12, rtol=0)
    pre = torch.stack([x_t @ layer.weight_ih_l0.T for x_t in x]) + layer.bias_ih_l0 + layer.bias_hh_l0
    torch.testing.assert_close(tape["layer0.forward.row"][0], pre[0, :, :H].detach())


class Namesake(gg.Cell):
    """A cell with an unused gate whose name engines use for the input term of another gate."""

    gates = ("x", "x_ih")
    recurrent = False

    def step(self, a, s):
        return torch.tanh(a.x) + s.h / 2


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_terms_of_pre_activations_are_not_recorded(engine):
    layer = gg.Recurrent(Namesake(), D, H, dtype=torch.float64)
    with gg.engine(engine), gg.record(layer) as tape:
        layer(torch.randn(L, N, D, dtype=torch.float64))
    assert list(tape) == ["layer0.forward.x", "layer0.forward.h"]


class Detached(gg.Cell):
    """A cell whose state `y` receives no gradient, because all its readers are detached."""

    gates = ("x", "y")
    state = ("h", "c")
    recurrent = False

    def step(self, a, s):
        x = torch.sigmoid(a.x)
        return x * a.x, 2 * a.y.detach()


def test_gradients_of_detached_values_are_zero():
    layer, x = gg.Recurrent(Detached(), D, H, dtype=torch.float64), torch.randn(L, N, D, dtype=torch.float64)
    tapes = []
    for engine in ("cpu", "reference"):
        with gg.engine(engine), gg.record(layer) as tape:
            output, (_, c_n) = layer(x)
        (output.sum() + c_n.sum()).backward()
        assert not tape.grad["layer0.forward.y"].any()
        tapes.append(dict(tape.grad))
    torch.testing.assert_close(*tapes, atol=1e-12, rtol=0)


class Unread(gg.Cell):
    """At the first step, `u` depends on no parameter."""

    gates, state, unit = {"n": ("unit",)}, {"h": ("unit",)}, 3
    recurrent = False

    def step(self, a, s):
        u = torch.cos(s.h)
        return torch.tanh(a.n) * u


def test_values_that_depend_on_no_parameter_have_a_gradient():
    """They had a gradient of zero in a loop of torch operations, where nothing that requires one leads to them."""
    layer, x = gg.Recurrent(Unread(), 2, 3), torch.randn(4, 2, 2)
    gradients = []
    for engine in ("reference", "cpu"):
        with gg.engine(engine), gg.record(layer) as tape:
            layer(x)[0].sum().backward()
        gradients.append(tape.grad["layer0.forward.u"])
    assert gradients[0][0].abs().min() > 0
    torch.testing.assert_close(*gradients)


def test_a_recording_of_no_sequences_has_all_names():
    layer = gg.Recurrent(gg.cells.LinearAttention(heads=2, key_size=4), 6, 8, recurrent_dropout=0.3)
    tapes = []
    for N in (0, 2):
        with gg.record(layer) as tape:
            layer(torch.randn(5, N, 6))
        tapes.append({name: (*v.shape[:1], *v.shape[2:]) for name, v in tape.items()})
    assert tapes[0] == tapes[1]


def test_names_contain_the_modules_of_a_model():
    model = torch.nn.ModuleDict({"encoder": gg.GRU(D, H), "decoder": gg.LSTM(H, H)})
    with gg.record(model) as tape, torch.no_grad():
        model["decoder"](model["encoder"](torch.randn(L, N, D))[0])
    assert tape["encoder.layer0.forward.z"].shape == (L, N, H)
    assert tape["decoder.layer0.forward.c"].shape == (L, N, H)
    assert not tape.grad


def test_wrong_arguments_are_rejected():
    layer = gg.GRU(D, H)
    with gg.record(layer) as tape:
        layer(torch.randn(L, N, D))
    with pytest.raises(KeyError, match=r"'layer0.forward.f' was not recorded; recorded names: layer0\.forward\.r"):
        tape["layer0.forward.f"]
    with (
        pytest.raises(TypeError, match="record: the module must be or hold a recurrent layer of glassgate, got Linear"),
        gg.record(torch.nn.Linear(2, 2)),
    ):
        pass
    stock = torch.nn.Sequential(torch.nn.GRU(D, H))
    with pytest.raises(TypeError, match=r"got Sequential; replace the layers of torch\.nn by those"), gg.record(stock):
        pass
    with pytest.raises(
        KeyError, match=r"recorded names: none; call the layer inside gg.record; for gradients, call backward\(\)"
    ):
        tape.grad["layer0.forward.z"]
    with (
        gg.engine("torch"),
        gg.record(layer),
        pytest.raises(gg.EngineError, match="torch's kernels do not record gates"),
    ):
        layer(torch.randn(L, N, D))


def test_compiled_modules_run_uncompiled_while_they_are_recorded_or_edited():
    layer, x = gg.LSTM(3, 4), torch.randn(5, 2, 3)
    compiled = torch.compile(layer, backend="eager")
    expected, _ = compiled(x)
    with gg.record(layer) as tape:
        output, _ = compiled(x)
    assert torch.equal(output, expected)
    assert tape["layer0.forward.h"].equal(output)
    with gg.edit(layer, {"layer0.forward.o": gg.hold(0.0)}):
        assert not compiled(x)[0].any()
    assert torch.equal(compiled(x)[0], expected)

    torch._dynamo.reset()
    with (
        patch("glassgate.glass.contexts.sys", SimpleNamespace(modules={})),  # the compiler was not loaded before
        gg.record(layer),
        pytest.raises(
            RuntimeError,
            match=r"record: torch\.compile was called inside the block of gg\.record, .*; call torch\.compile before",
        ),
    ):
        torch.compile(layer, backend="eager")(x)

    def recorded(x):
        with gg.record(layer):
            return layer(x)

    def edited(x):
        with gg.edit(layer, {"layer0.forward.o": gg.hold(0.0)}):
            return layer(x)

    for inside, done in ((recorded, "recorded"), (edited, "edited")):
        with pytest.raises(RuntimeError, match=f"nothing can be {done} inside of a compiled function"):
            torch.compile(inside, backend="eager")(x)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("lengths", [None, [4, L, 1]])
def test_reads_are_the_steps_whose_output_has_a_gradient(engine, lengths):
    layer, x = gg.LSTM(D, H, bidirectional=True), torch.randn(L, N, D)
    for _ in range(3):  # the later calls are prepared
        with gg.engine(engine), gg.record(layer) as tape:
            output, (h_n, _) = layer(x, lengths=lengths)
        output[2, 1, :H].sum().backward(retain_graph=True)
        expected = torch.zeros(L, N, dtype=torch.bool)
        assert not tape.steps_with_gradient("layer0.reverse").any()
        expected[2, 1] = True
        assert tape.steps_with_gradient("layer0.forward").equal(expected)
        torch.autograd.grad(h_n[0, 0].sum(), layer.weight_ih_l0, create_graph=True)
        expected[3 if lengths else L - 1, 0] = True
        assert tape.steps_with_gradient("layer0.forward").equal(expected)
        h_n[1, 2].sum().backward()
        assert tape.steps_with_gradient("layer0.reverse").nonzero().tolist() == [[0, 2]]


def test_a_recording_leaves_the_random_state():
    layer, x = gg.RNN(D, H), torch.randn(L, N, D)  # its gate and its state have one name, which recordings check
    layer.cell = type("Copy", (gg.cells.RNN,), {})()
    state = torch.get_rng_state()
    with gg.record(layer):
        layer(x)
    assert torch.equal(torch.get_rng_state(), state)
