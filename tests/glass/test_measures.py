"""Measures of a recording against loops over the cell's equations in plain PyTorch."""

import math

import pytest
import torch

import glassgate as gg
from glassgate.glass.measures import ranges
from glassgate.glass.retention import retentions

L, N, D, H = 7, 3, 4, 5


class Leaky(gg.Cell):
    """A custom cell."""

    gates = ("f", "n")
    state = ("h",)

    def step(self, a, s):
        f = torch.sigmoid(a.f)
        return f * s.h + (1 - f) * torch.tanh(a.n)


def record_call(layer, x, **given):
    with gg.record(layer) as tape:
        output, _ = layer(x, **given)
    return tape, output


LENGTHS = torch.tensor([L, 2, 5])


def test_saturation_ignores_padding():
    layer = gg.LSTM(D, H)
    with torch.no_grad():
        for each in layer.parameters():
            each.mul_(9)
    tape, _ = record_call(layer, torch.randn(L, N, D), lengths=LENGTHS)
    for name, low in (("f", 0.1), ("i", 0.1), ("g", -0.9)):
        values = torch.cat([tape[f"layer0.forward.{name}"][:length, n] for n, length in enumerate(LENGTHS)])
        fractions = tape.saturation()[f"layer0.forward.{name}"]
        assert fractions.low.tolist() == pytest.approx([float((v < low).sum()) / len(v) for v in values.T])
        assert fractions.high.tolist() == pytest.approx([float((v > 0.9).sum()) / len(v) for v in values.T])
    assert fractions.high.max() > 0.1


@pytest.mark.parametrize(
    ("make", "state", "gate"),
    [
        (lambda: gg.LSTM(D, H, num_layers=2, bidirectional=True), "c", "f"),
        (lambda: gg.LSTM(D, H, proj_size=2), "c", "f"),
        (lambda: gg.GRU(D, H, bidirectional=True), "h", "z"),
        (lambda: gg.Recurrent(gg.cells.LayerNormLSTM(), D, H, proj_size=2), "c", "f"),
        (lambda: gg.Recurrent(Leaky(), D, H), "h", "f"),
    ],
)
def test_half_life_is_that_of_the_forget_gate(make, state, gate):
    tape, _ = record_call(make(), torch.randn(L, N, D), lengths=LENGTHS)
    half_lives = tape.half_life()
    assert {name.rsplit(".", 1)[1] for name in half_lives} == {state}
    for name, value in half_lives.items():
        label = name.rsplit(".", 1)[0]
        f = torch.cat([tape[f"{label}.{gate}"][:length, n] for n, length in enumerate(LENGTHS)])
        torch.testing.assert_close(value, math.log(0.5) / f.double().log().mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"zoneout": 0.1, "recurrent_dropout": 0.1}, {"bidirectional": True}])
def test_cells_with_noise_have_measures_and_a_report(options, tmp_path):
    """A step of a CTRNN keeps 1 - leak of x, whatever the noise is."""
    for training in (True, False):
        layer = gg.Recurrent(gg.cells.CTRNN(sigma=0.1), D, H, **options).train(training)
        tape, output = record_call(layer, torch.randn(L, N, D), lengths=LENGTHS)
        output.sum().backward()
        for name, value in tape.half_life().items():
            assert name.endswith(".x")
            torch.testing.assert_close(value, torch.full((H,), math.log(0.5) / math.log(0.8)).double())
        assert tape.memory()["layer0.forward.x"].median[1].item() == pytest.approx(0.8)
        assert tape.saturation() == {}
        tape.report(tmp_path / "report.html")


@pytest.mark.parametrize("make", [lambda: gg.RNN(D, H), lambda: gg.GRU(D, H), lambda: gg.Recurrent(Leaky(), D, H)])
def test_retention_equals_autograd_unit_by_unit(make):
    """Retention is the diagonal of the Jacobian, without the recurrent products if a state has a direct path."""
    layer = make().double()
    x = torch.randn(L, 1, D, dtype=torch.float64)
    tape, output = record_call(layer, x)
    (label, call, index), *_ = tape.directions()
    retention = retentions(call, index)["h"]
    assert retention.direct == (not isinstance(layer, gg.RNN))
    for t in (1, 4):
        before = output[t - 1].detach()
        if retention.direct:
            gate = "z" if isinstance(layer, gg.GRU) else "f"
            expected = tape[f"{label}.{gate}"][t, 0]
        else:
            jacobian = torch.autograd.functional.jacobian(lambda h, t=t: layer(x[t : t + 1], h[None])[0][0], before)
            expected = jacobian[0, :, 0].diagonal()
        torch.testing.assert_close(retention.by_step[t, 0], expected, rtol=1e-9, atol=1e-9)


def test_memory_is_the_product_of_retentions():
    tape, _ = record_call(gg.LSTM(D, H), torch.randn(L, N, D), lengths=LENGTHS)
    memory = tape.memory(3)["layer0.forward.c"]
    f = tape["layer0.forward.f"].double()
    assert memory.steps.tolist() == [0, 1, 2, 3]
    for k in (1, 2, 3):
        left = [f[t : t + k, n].prod(0) for n, length in enumerate(LENGTHS) for t in range(int(length) - k + 1)]
        every = torch.cat(left)
        for value, level in ((memory.median, 0.5), (memory.low, 0.1), (memory.high, 0.9)):
            assert float(value[k]) == pytest.approx(float(every.quantile(level)), rel=1e-6)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_connectivity_and_gradient_flow_equal_autograd(engine):
    layer = gg.LSTM(D, H, num_layers=2, bidirectional=True)
    x = torch.randn(L, N, D)
    with gg.engine(engine):
        tape, output = record_call(layer, x, lengths=LENGTHS)
        targets = torch.stack([output[3, 0, 0], output[1, 1].sum()])
        connectivity, flow = tape.connectivity(targets), tape.gradient_flow(targets)
    for row, pick in enumerate((lambda out: out[3, 0, 0], lambda out: out[1, 1].sum())):
        leaf = x.clone().requires_grad_()
        alone, plain = record_call(layer, leaf, lengths=LENGTHS)
        pick(plain).backward()
        torch.testing.assert_close(connectivity[row], (leaf.grad * leaf).sum(-1).detach(), atol=1e-6, rtol=1e-5)
        assert flow.keys() == {name for name in alone.grad if name.endswith(("h", "c"))}
        for name, norms in flow.items():
            torch.testing.assert_close(norms[row], alone.grad[name].norm(dim=-1), atol=1e-6, rtol=1e-5)
    output.sum().backward()
    reached = tape.gradient_flow()
    torch.testing.assert_close(reached["layer1.reverse.c"], tape.grad["layer1.reverse.c"].norm(dim=-1))


def test_gates_have_their_ranges():
    assert ranges(gg.cells.LSTM()) == {"i": "gate", "f": "gate", "g": "signed", "o": "gate"}
    assert ranges(gg.cells.MinGRU())["n"] == "unbounded"
    assert ranges(gg.cells.LayerNormGRU())["n"] == "signed"
    assert ranges(gg.cells.DeltaNet(2, 4)) == {"q": "signed", "k": "signed", "b": "gate"}


def test_invalid_calls_raise_errors():
    layer = gg.GRU(D, H)
    with gg.record(layer) as tape:
        pass
    with pytest.raises(ValueError, match="nothing was recorded"):
        tape.half_life()
    with torch.no_grad():
        tape, output = record_call(layer, torch.randn(L, N, D))
    with pytest.raises(ValueError, match="target must be computed from the recorded output with gradients"):
        tape.connectivity(output[0, 0, 0])
    tape, output = record_call(layer, torch.randn(L, N, D))
    with pytest.raises(ValueError, match=r"must have shape \(\) or \(A,\), got \(7, 3, 5\)"):
        tape.connectivity(output)
    with pytest.raises(
        ValueError, match=r"gradient_flow: no gradient was recorded; give a target, or call backward\(\) first"
    ):
        tape.gradient_flow()
