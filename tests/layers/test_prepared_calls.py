"""Prepared calls give the same bits as the general path, and notice changes of the layer."""

import pytest
import torch
from torch import nn

import glassgate as gg
from glassgate.layers import prepared_calls
from tests.compare import noise as noise64


def noise(seed, *shape):
    return noise64(seed, *shape).float()


def flat(result):
    output, final = result
    return [output, *(final if isinstance(final, tuple) else (final,))]


def call(layer, x, hx=None, learns=True, **more):
    torch.manual_seed(0)
    with torch.set_grad_enabled(learns):
        results = flat(layer(x, hx, **more))
        if learns:
            loss = sum((v.sin() * (k + 1)).sum() for k, v in enumerate(results))
            states = [v for v in (hx, more.get("restart")) if v is not None]
            states = [v for state in states for v in (state if isinstance(state, tuple) else [state])]
            leaves = [v for v in (x, *states, *layer.parameters()) if v.requires_grad]
            results += torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [v.detach().clone() for v in results]


def prepared(layer):
    cache = layer.glassgate.prepared_calls._cache
    return [] if cache is None else [call for call in cache.calls.values() if call is not None]


def same(results, expected):
    assert len(results) == len(expected)
    for one, other in zip(results, expected, strict=True):
        assert torch.equal(one, other)


LAYERS = {
    "LSTM": lambda: gg.LSTM(6, 5),
    "batch first": lambda: gg.GRU(6, 5, batch_first=True),
    "no bias, float64": lambda: gg.RNN(6, 5, bias=False, dtype=torch.float64),
    "bfloat16": lambda: gg.GRU(6, 5, dtype=torch.bfloat16),
    "projected": lambda: gg.LSTM(6, 20, proj_size=5),
    "stacked": lambda: gg.LSTM(6, 5, 2, bidirectional=True),
    "own parameters": lambda: gg.Recurrent(gg.cells.LayerNormLSTM(), 6, 5),
    "residual": lambda: gg.GRU(6, 5, 3, residual=True),
    "sum": lambda: gg.LSTM(6, 5, 2, bidirectional=True, merge="sum", residual=True, dtype=torch.bfloat16),
    "dropout": lambda: gg.LSTM(6, 5, 3, dropout=0.4, residual=True),
    "variational dropout": lambda: gg.GRU(
        6, 5, 2, batch_first=True, bidirectional=True, merge="mean", dropout=0.4, variational_dropout=True
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("learns", [False, True])
def test_prepared_calls_give_the_same_bits(name, learns):
    layer = LAYERS[name]()
    if name == "LSTM":
        layer.bias_hh_l0.requires_grad_(False)
    dtype, out = layer.weight_ih_l0.dtype, 5
    for shape in ((30, 3, 6), (30, 6), (30, 1, 6)):
        x = noise(1, *shape).to(dtype).requires_grad_(learns)
        rows = [] if len(shape) == 2 else [30 if layer.batch_first else shape[1]]
        widths = [out, *[layer.hidden_size] * (len(layer.cell.state) - 1)]
        states = [noise(2 + k, len(layer.glassgate.parts), *rows, width).to(dtype) for k, width in enumerate(widths)]
        for hx in (None, tuple(states) if len(states) > 1 else states[0]):
            before = len(prepared(layer))
            first = call(layer, x, hx, learns)
            assert len(prepared(layer)) == before
            for _ in range(3):
                same(call(layer, x, hx, learns), first)
            assert len(prepared(layer)) == before + 1


EVERY_FORM = "LSTM", "batch first", "projected", "stacked", "own parameters", "dropout"
NOISY = {
    "zoneout": lambda: gg.LSTM(6, 5, zoneout=(0.1, 0.3)),
    "recurrent dropout": lambda: gg.GRU(6, 5, 2, bidirectional=True, recurrent_dropout=0.4),
    "on the state": lambda: gg.LSTM(6, 5, recurrent_dropout=0.4, recurrent_dropout_on="state", batch_first=True),
}


@pytest.mark.parametrize("name", [*EVERY_FORM, *NOISY])
def test_prepared_calls_with_resets_and_noise_give_the_same_bits(name):
    layer = (LAYERS | NOISY)[name]()
    widths = [5, *[layer.hidden_size] * (len(layer.cell.state) - 1)]
    x = noise(1, 30, 3, 6).requires_grad_()
    rows = 30 if layer.batch_first else 3
    hx, restart = [
        tuple([noise(seed + k, len(layer.glassgate.parts), rows, n).requires_grad_() for k, n in enumerate(widths)])
        for seed in (2, 4)
    ]
    hx, restart = (hx, restart) if len(widths) > 1 else (hx[0], restart[0])
    mask = noise(6, 30, 3) > 1
    for more in ({}, {"resets": mask}, {"resets": mask, "restart": restart}):
        for state in (None, hx):
            for learns in (True, False):
                before = len(prepared(layer))
                first = call(layer, x, state, learns, **more)
                assert len(prepared(layer)) == before
                for _ in range(3):
                    same(call(layer, x, state, learns, **more), first)
                assert len(prepared(layer)) == before + 1
    other = call(layer, x, hx, resets=~mask)
    assert not torch.equal(other[0], call(layer, x, hx, resets=mask)[0])
    assert not torch.equal(other[0], call(layer, x, hx)[0])


def test_second_derivatives_of_prepared_calls_with_resets():
    layer = gg.LSTM(3, 2, dtype=torch.float64)
    x, c_0 = noise64(1, 4, 2, 3).requires_grad_(), noise64(2, 1, 2, 2).requires_grad_()
    mask = torch.tensor([[0, 0], [1, 0], [0, 0], [1, 1]], dtype=torch.bool)

    def output(x, c_0):
        return layer(x, (c_0.sin(), c_0), resets=mask, restart=(c_0.cos(), -c_0))[0]

    assert torch.autograd.gradcheck(output, (x, c_0))
    assert torch.autograd.gradgradcheck(output, (x, c_0))
    assert prepared(layer)


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("LSTM", torch.bfloat16),
        ("LSTM", torch.float16),
        ("stacked", torch.bfloat16),
        ("no bias, float64", torch.bfloat16),  # autocast does not change float64
    ],
)
def test_prepared_calls_under_autocast_give_the_same_bits(name, result):
    layer = LAYERS[name]()
    kept = layer.weight_ih_l0.dtype
    result = kept if kept is torch.float64 else result
    widths = [5, *[layer.hidden_size] * (len(layer.cell.state) - 1)]
    states = [
        noise(2 + k, len(layer.glassgate.parts), 3, width).to(kept).requires_grad_() for k, width in enumerate(widths)
    ]
    leaves = [*layer.parameters(), *states]
    x = noise(1, 15, 3, 6).to(kept).requires_grad_()
    initial = tuple(states) if len(states) > 1 else states[0]
    mask = noise(9, 15, 3) > 1
    for data in (x, x.detach().to(result).requires_grad_()):
        for hx, resets in ((None, None), (initial, None), (initial, mask)):
            layer.glassgate.prepared_calls, results = prepared_calls.PreparedCalls(), []
            for _ in range(4):
                with torch.autocast("cpu", torch.bfloat16 if kept is torch.float64 else result):
                    values = flat(layer(data, hx, resets=resets))
                loss = sum((v.double().sin() * (k + 1)).sum() for k, v in enumerate(values))
                d = torch.autograd.grad(loss, [data, *leaves], create_graph=True, allow_unused=True)
                second = sum(v.double().square().sum() for v in d if v is not None)
                dd = torch.autograd.grad(second, [data, *leaves], allow_unused=True)
                assert {v.dtype for v in values} == {result}
                assert all(v is None or v.dtype is of.dtype for v, of in zip(d, [data, *leaves], strict=True))
                results.append([[v.detach() for v in each if v is not None] for each in ((*values, *d), dd)])
            assert len(prepared(layer)) == 1
            for again, second in results[1:]:
                same(again, results[0][0])
                for one, other in zip(second, results[0][1], strict=True):  # the reference engine may round the data
                    torch.testing.assert_close(one, other, rtol=0.02, atol=0.02 * float(other.abs().max()))


def test_every_change_between_two_calls_is_detected():
    x, layer = noise(1, 40, 3, 6), gg.LSTM(6, 6)
    changes = {
        "numbers": lambda: layer.weight_hh_l0.data.mul_(2),
        "turned where it is": lambda: setattr(layer.weight_ih_l0, "data", layer.weight_ih_l0.data.view(6, 24).T),
        "other memory": lambda: setattr(layer.bias_hh_l0, "data", torch.ones(24)),
        "another parameter": lambda: setattr(layer, "weight_hh_l0", nn.Parameter(noise(5, 24, 6))),
        "assigned": lambda: layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()}, assign=True),
        "another form": lambda: setattr(layer, "batch_first", True),
        "another cell": lambda: setattr(layer, "eval_cell", gg.cells.LSTM()),
        "parametrized": lambda: nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0"),
    }
    layer.eval()
    for _ in range(3):
        results = call(layer, x, learns=False)
    assert prepared(layer)
    for name, change in changes.items():
        before = results
        change()
        for _ in range(3):
            results = call(layer, x, learns=False)
            with gg.engine("reference"), torch.no_grad():
                expected = flat(layer(x))
            for one, other in zip(results, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert (name == "another cell") == torch.equal(before[0], results[0]), name


def test_the_equations_of_a_cell_are_checked_before_each_call():
    class Scaled(gg.Cell):
        gates, state, factor = ("g",), ("h",), 1.0

        def step(self, a, s):
            return self.factor * torch.tanh(a.g)

    cell = Scaled()
    layer, x = gg.Recurrent(cell, 6, 5).eval(), noise(1, 40, 3, 6)
    for _ in range(3):
        before = call(layer, x, learns=False)[0]
    cell.factor = 0.5
    after = call(layer, x, learns=False)[0]
    assert torch.allclose(after[0], before[0] / 2, atol=1e-6)


def test_edits_are_prepared_with_their_numbers():
    layer, x = gg.LSTM(6, 5, dtype=torch.float64), noise64(1, 30, 3, 6).requires_grad_()
    edits = {"layer0.forward.f": [gg.scale(0.5, steps=slice(3, 9)), gg.hold(0.25, units=[1])]}
    plain = call(layer, x)
    with gg.edit(layer, {**edits, "layer0.forward.h": gg.scale(0.9)}):
        first = call(layer, x)
        with gg.engine("reference"):
            expected = call(layer, x)
        for _ in range(3):
            results = call(layer, x)
            same(results, first)
        assert prepared(layer)
        for one, other in zip(results, expected, strict=True):
            torch.testing.assert_close(one, other)
    for _ in range(3):
        same(call(layer, x), plain)


def test_noise_is_drawn_again_at_each_prepared_call():
    x, noisy = noise(1, 40, 3, 6), gg.LSTM(6, 5, zoneout=0.5)
    drawn = [noisy(x)[0] for _ in range(4)]
    assert prepared(noisy)
    assert not any(torch.equal(drawn[0], other) for other in drawn[1:])


@pytest.mark.parametrize("name", ["LSTM", "stacked", "zoneout"])
def test_an_empty_batch_has_an_empty_result(name):
    layer = (LAYERS | NOISY)[name]()
    for resets in (None, torch.zeros(4, 0, dtype=torch.bool)):
        for _ in range(3):
            assert layer(torch.zeros(4, 0, 6), resets=resets)[0].shape == (
                4,
                0,
                5 * len(layer.glassgate.parts) // layer.num_layers,
            )


@pytest.mark.parametrize("name", [*EVERY_FORM, "zoneout"])
def test_prepared_calls_that_return_or_record_all_states_give_the_same_bits(name):
    layer = (LAYERS | NOISY)[name]()
    x, mask = noise(1, 30, 3, 6).requires_grad_(), noise(6, 30, 3) > 1
    rows, widths = (30 if layer.batch_first else 3), [5, *[layer.hidden_size] * (len(layer.cell.state) - 1)]
    hx = tuple([noise(2 + k, len(layer.glassgate.parts), rows, n).requires_grad_() for k, n in enumerate(widths)])
    hx = hx if len(hx) > 1 else hx[0]

    def shown(hx, **more):
        torch.manual_seed(0)
        with gg.record(layer) as tape:
            output, final, every = layer(x, hx, return_states=True, **more)
        values = [*flat((output, final)), *every.values()]
        loss = sum((v.sin() * (k + 1)).sum() for k, v in enumerate(values))
        leaves = [x, *(v for v in (hx if isinstance(hx, tuple) else [hx]) if v is not None), *layer.parameters()]
        results = [*values, *torch.autograd.grad(loss, leaves), *tape.values(), *tape.grad.values()]
        reads = [tape.steps_with_gradient(label) for label, _, _ in tape.directions()]
        assert all(each.any() for each in reads)
        return [v.detach().clone() for v in (*results, *reads)]

    for state, more in ((None, {}), (hx, {}), (hx, {"resets": mask}), (None, {"resets": mask, "restart": hx})):
        before = len(prepared(layer))
        first = shown(state, **more)
        for _ in range(3):
            same(shown(state, **more), first)
        assert len(prepared(layer)) == before + 1
    with torch.no_grad():
        plain = layer(x)[0]
        for _ in range(3):
            with gg.record(layer) as tape:
                output = layer(x)[0]
            assert set(tape) == {
                f"{part.label}.{value}"
                for part in layer.glassgate.parts
                for value in {v.rpartition(".")[2] for v in tape}
            }
    if not (layer.glassgate.training_cell.noise or layer.dropout):
        assert torch.equal(output, plain)


def test_recordings_edits_lengths_and_engines_are_not_prepared():
    x, layer = noise(1, 40, 3, 6), gg.LSTM(6, 5)
    for _ in range(3):
        plain = call(layer, x, learns=False)[0]
    with gg.record(layer) as tape:
        layer(x)
    assert tape["layer0.forward.f"].shape == (40, 3, 5)
    with gg.edit(layer, {"layer0.forward.f": gg.hold(0.0)}):
        assert not torch.equal(call(layer, x, learns=False)[0], plain)
    assert layer(x, lengths=[40, 1, 0])[0][1:, 1:].eq(0).all()
    with gg.engine("reference"):
        assert call(layer, x, learns=False)[0].sub(plain).abs().max() > 0
    same(call(layer, x, learns=False)[:1], [plain])


def test_errors_are_raised_at_every_call():
    layer = gg.LSTM(6, 5)
    x, hx = noise(1, 40, 3, 6), (torch.zeros(1, 2, 5), torch.zeros(1, 3, 5))
    for _ in range(3):
        with pytest.raises(gg.ShapeError, match=r"LSTM: h_0 must be \(num_layers \* D, N, H_out\) = \(1, 3, 5\)"):
            layer(x, hx)
        with pytest.raises(gg.ShapeError, match="dtype"):
            layer(x.double())
        with pytest.raises(gg.ShapeError, match="input_size = 6 features, got 7"):
            layer(noise(1, 40, 3, 7))
        layer(x)


def test_second_derivatives_and_gradients_of_some_results():
    layer, x = gg.LSTM(6, 5, dtype=torch.float64), noise(1, 30, 2, 6).double().requires_grad_()
    leaves = [x, *layer.parameters()]

    def second():
        output, (h, _) = layer(x)
        first = torch.autograd.grad(output.square().sum() + h.sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(v.square().sum() for v in first), leaves)

    with gg.engine("reference"):
        expected = second()
    for _ in range(3):
        for one, other in zip(second(), expected, strict=True):
            torch.testing.assert_close(one, other)
    (_, (_, c)) = layer(x)
    (d,) = torch.autograd.grad(c.sum(), layer.weight_hh_l0)
    assert d.abs().sum() > 0
