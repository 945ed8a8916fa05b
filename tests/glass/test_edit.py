"""Edits equal a loop in plain torch that changes the same values: results and gradients, on every engine."""

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import glassgate as gg
from tests.compare import check, measure, noise

L, N, D, H = 6, 3, 4, 5
LENGTHS = torch.tensor([4, L, 1])
RESETS = noise(3, L, N) > 0.6
OTHER = noise(4, L, N, H)
EDITS = {
    "layer0.forward.i": gg.scale(0.5, units=slice(0, 3)),
    "layer0.forward.f": gg.hold(1.0, units=[3], steps=slice(1, 4)),
    "layer0.forward.g": gg.replace(OTHER, units=[0, -1], steps=[0, 2]),
    "layer0.forward.o": [gg.hold(noise(5, H).sigmoid()), gg.scale(torch.tensor([2.0, 0.5]), units=[1, 2], steps=3)],
    "layer0.forward.h": gg.hold(torch.tensor([0.3, -0.2]), units=torch.tensor([True, False, False, True, False])),
    "layer0.forward.c": gg.scale(-1.5, steps=[2, -1]),
    **{f"layer0.reverse.{name}": gg.scale(1.0, steps=[]) for name in "ifgo"},
    "layer0.reverse.h": gg.scale(1.0),
    "layer0.reverse.c": gg.hold(0.7, units=2, steps=slice(None, 2)),
}
"""Both directions edit the same names with the same kinds of edits, so that one kernel runs both."""


def edited(name: str, t: int, row: int, value: Tensor) -> Tensor:
    """The edit of one value (H,) at one step of one sequence, written out for each name of `EDITS`."""
    v = list(value)
    if name == "forward.i":
        v = [0.5 * v[0], 0.5 * v[1], 0.5 * v[2], v[3], v[4]]
    if name == "forward.f" and t in (1, 2, 3):
        v[3] = torch.ones(())
    if name == "forward.g" and t in (0, 2):
        v[0], v[4] = OTHER[t, row, 0], OTHER[t, row, 4]
    if name == "forward.o":
        v = list(noise(5, H).sigmoid())
        if t == 3:
            v[1], v[2] = 2 * v[1], 0.5 * v[2]
    if name == "forward.h":
        v[0], v[3] = torch.tensor(0.3), torch.tensor(-0.2)
    if name == "forward.c" and t in (2, L - 1):
        v = [-1.5 * each for each in v]
    if name == "reverse.c" and t in (0, 1):
        v[2] = torch.tensor(0.7, dtype=torch.float64)
    return torch.stack([torch.as_tensor(each, dtype=value.dtype) for each in v])


def edited_loop(layer, x: Tensor, hx, lengths, resets, zoneout: float = 0.0):
    """A bidirectional LSTM with the edits, one sequence after the other."""
    output = x.new_zeros(L, N, 2 * H)
    final = [[[], []], [[], []]]
    for way, direction in enumerate(("forward", "reverse")):
        suffix = "_l0" + "_reverse" * way
        w_ih, w_hh, b_ih, b_hh = (getattr(layer, n + suffix) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        for row in range(N):
            h, c = hx[0][way, row], hx[1][way, row]
            steps = range(int(lengths[row]))
            for t in reversed(steps) if way else steps:
                if resets[t, row]:
                    h, c = hx[0][way, row], hx[1][way, row]
                i, f, g, o = (w_ih @ x[t, row] + b_ih + w_hh @ h + b_hh).chunk(4)
                gates = dict(i=i.sigmoid(), f=f.sigmoid(), g=g.tanh(), o=o.sigmoid())
                i, f, g, o = (edited(f"{direction}.{name}", t, row, v) for name, v in gates.items())
                new_c = f * c + i * g
                new_h = o * new_c.tanh()
                new_h, new_c = zoneout * h + (1 - zoneout) * new_h, zoneout * c + (1 - zoneout) * new_c
                h, c = edited(f"{direction}.h", t, row, new_h), edited(f"{direction}.c", t, row, new_c)
                output[t, row, way * H : way * H + H] = h
            final[0][way].append(h)
            final[1][way].append(c)
    return output, *(torch.stack([torch.stack(rows) for rows in state]) for state in final)


def results(run, layer):
    x = noise(0, L, N, D).requires_grad_()
    hx = [noise(k, 2, N, H).requires_grad_() for k in (1, 2)]
    output, h_n, c_n = run(x, tuple(hx))
    leaves = {"x": x, "h_0": hx[0], "c_0": hx[1], **dict(layer.named_parameters())}
    return measure({"output": output, "h_n": h_n, "c_n": c_n}, leaves)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_edits_equal_a_loop_that_changes_the_same_values(engine):
    torch.manual_seed(0)
    layer = gg.LSTM(D, H, bidirectional=True, dtype=torch.float64)
    full, none = torch.full((N,), L), torch.zeros(L, N, dtype=torch.bool)

    def packed(x, hx):
        output, (h_n, c_n) = layer(pack_padded_sequence(x, LENGTHS, enforce_sorted=False), hx)
        return pad_packed_sequence(output, total_length=L)[0], h_n, c_n

    def plain(**form):
        def run(x, hx):
            output, (h_n, c_n) = layer(x, hx, **form)
            return output, h_n, c_n

        return run

    forms = {
        "padded": (plain(), full, none),
        "lengths": (plain(lengths=LENGTHS), LENGTHS, none),
        "packed": (packed, LENGTHS, none),
        "resets": (plain(resets=RESETS), full, RESETS),
    }
    for run, lengths, resets in forms.values():
        truth = results(lambda x, hx, given=(lengths, resets): edited_loop(layer, x, hx, *given), layer)
        with gg.engine(engine), gg.edit(layer, EDITS):
            check(results(run, layer), truth)
    layer.batch_first = True
    truth = results(lambda x, hx: edited_loop(layer, x, hx, full, none), layer)
    with gg.engine(engine), gg.edit(layer, EDITS):
        check(
            results(lambda x, hx: (y := plain()(x.transpose(0, 1), hx), (y[0].transpose(0, 1), *y[1:]))[1], layer),
            truth,
        )


def test_edits_work_with_zoneout_and_recurrent_dropout():
    """In eval mode against the loop. In training mode with the same noise, the kernel against the reference."""
    torch.manual_seed(0)
    layer = gg.LSTM(D, H, bidirectional=True, zoneout=0.25, recurrent_dropout=0.2, dtype=torch.float64)
    layer.eval()
    full, none = torch.full((N,), L), torch.zeros(L, N, dtype=torch.bool)

    def run(x, hx):
        torch.manual_seed(1)
        output, (h_n, c_n) = layer(x, hx)
        return output, h_n, c_n

    with gg.engine("reference"), gg.edit(layer, EDITS):
        check(results(run, layer), results(lambda x, hx: edited_loop(layer, x, hx, full, none, 0.25), layer))
    layer.train()
    both, alike = [], {f"layer0.{way}.c": gg.scale(0.5, units=[1]) for way in ("forward", "reverse")}  # one kernel
    for engine in ("cpu", "reference"):
        with gg.engine(engine), gg.edit(layer, alike):
            both.append(results(run, layer))
    check(*both)
    again = gg.LSTM(D, H, bidirectional=True, zoneout=0.25, recurrent_dropout=0.2, recompute=True, dtype=torch.float64)
    again.load_state_dict(layer.state_dict())
    x = noise(0, L, N, D)
    outputs = []
    for each in (layer, again):
        torch.manual_seed(1)
        with gg.engine("reference"), gg.edit(each, EDITS):
            outputs.append(each(x)[0])
    torch.testing.assert_close(*outputs, atol=1e-12, rtol=0)


class CustomCell(gg.Cell):
    """Two of its gates lack a variable in `step`, so they have the names of their pre-activations."""

    gates, state = ("f", "g", "r"), ("h",)
    parameters = {"gain": gg.Parameter(1.0)}

    def step(self, a, s, p):
        f = torch.sigmoid(a.f)
        return f * s.h + (1 - f) * torch.tanh(a.ih.g + a.hh(torch.sigmoid(a.r) * s.h).g) * p.gain


@pytest.mark.parametrize(
    "cell", [gg.cells.LSTM(), gg.cells.LayerNormLSTM(), gg.cells.SLSTM(), gg.cells.GRUv3(), CustomCell()]
)
def test_replacing_values_by_themselves_changes_nothing(cell):
    layer = gg.Recurrent(cell, D, H, 2, bidirectional=True, dtype=torch.float64)
    x = noise(0, L, N, D)
    with gg.engine("reference"):
        with gg.record(layer) as tape:
            output, _ = layer(x, lengths=LENGTHS)
        with gg.edit(layer, gg.patch(tape, tape)), gg.record(layer) as again:
            torch.testing.assert_close(layer(x, lengths=LENGTHS)[0], output, atol=1e-12, rtol=0)
        for name, value in tape.items():
            torch.testing.assert_close(again[name], value, atol=1e-12, rtol=0, msg=name)
            with gg.edit(layer, {name: gg.hold(value[2, 1], steps=2)}):
                torch.testing.assert_close(layer(x[:, 1:2])[0], output[:, 1:2], atol=1e-12, rtol=0, msg=name)


def test_a_projected_state_is_as_wide_as_its_projection():
    layer = gg.LSTM(D, H, proj_size=2, dtype=torch.float64)
    with gg.edit(layer, {"layer0.forward.h": gg.hold(0.5, units=1), "layer0.forward.c": gg.hold(0.0)}):
        output, (_, c_n) = layer(noise(0, L, N, D))
    assert (output[..., 1] == 0.5).all()
    assert (output[..., 0] != 0.5).all()
    assert (c_n == 0).all()
    assert output.shape == (L, N, 2)


def test_second_derivatives_vmap_and_half_precision():
    layer, changes = gg.LSTM(D, 3, dtype=torch.float64), {"layer0.forward.f": gg.scale(0.5), "layer0.forward.h": HELD}
    x = noise(0, 3, 1, D).requires_grad_()
    with gg.edit(layer, changes):
        assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))
        both = torch.func.vmap(lambda x: layer(x)[0])(torch.stack([x, x]).detach())
        torch.testing.assert_close(both[1], layer(x)[0], atol=1e-12, rtol=0)
    for dtype in (torch.float16, torch.bfloat16):
        layer.to(dtype)
        with gg.engine("reference"), gg.edit(layer, changes):
            assert layer(x.to(dtype))[0][1:, 0, 1].tolist() == [0.5, 0.5]


HELD = gg.hold(0.5, units=1, steps=slice(1, 3))


def test_nested_edits_and_models():
    model = torch.nn.ModuleDict({"encoder": gg.GRU(D, H), "decoder": gg.GRU(H, H)})
    x = torch.randn(L, N, D)

    def run():
        with gg.engine("reference"), gg.record(model) as tape, torch.no_grad():
            model["decoder"](model["encoder"](x)[0])
        return tape

    plain = run()
    with gg.edit(model, {"decoder.layer0.forward.z": gg.hold(0.5)}):
        with gg.edit(
            model, {"decoder.layer0.forward.z": gg.scale(0.5, units=0), "encoder.layer0.forward.h": gg.hold(2.0)}
        ):
            inside = run()
        outside = run()
    assert (inside["decoder.layer0.forward.z"] == torch.tensor([0.25, *[0.5] * (H - 1)])).all()
    assert (inside["encoder.layer0.forward.h"] == 2).all()
    assert (outside["decoder.layer0.forward.z"] == 0.5).all()
    with pytest.raises(ZeroDivisionError), gg.edit(model, {"encoder.layer0.forward.h": gg.hold(2.0)}):
        raise ZeroDivisionError
    assert all(torch.equal(value, plain[name]) for name, value in run().items())


ERRORS = {
    "layer0.forward.q": (
        gg.hold(1.0),
        KeyError,
        r"edit: no gate or state 'layer0.forward.q'; there are layer0\.forward\.i, ",
    ),
    "layer0.forward.f": (1.0, TypeError, r"'layer0.forward.f' must be given gg\.hold, gg\.scale or gg\.replace, got 1"),
    "layer0.forward.i": (
        gg.hold(1.0, units=[5]),
        IndexError,
        r"units of 'layer0.forward.i' must be at least -5 and below 5, got 5",
    ),
    "layer0.forward.g": (gg.hold(torch.ones(3)), gg.ShapeError, r"a number or one for each of 5 units, got \(3,\)"),
    "layer0.forward.h": (gg.replace(torch.ones(6, 3, 4)), gg.ShapeError, r"must be \(L, N, 5\), got \(6, 3, 4\)"),
    "layer0.forward.c": (gg.hold(torch.ones((), requires_grad=True)), ValueError, "constants; pass them detached"),
    "layer0.forward.o": (gg.hold(1.0, units=[0.5]), TypeError, r"must be whole numbers, a slice or a mask, got 0\.5"),
}
ERRORS_AT_CALLS = [
    (gg.hold(1.0, steps=6), IndexError, r"steps of 'layer0.forward.f' must be at least -6 and below 6, got 6"),
    (gg.hold(1.0, steps=[True, False]), IndexError, "a mask must have 6 entries, got 2"),
    (gg.replace(torch.ones(6, 2, H)), gg.ShapeError, r"must be \(L, N, H\) = \(6, 3, 5\), got \(6, 2, 5\)"),
    (gg.replace(torch.ones(4, 3, H), steps=4), gg.ShapeError, r"must be \(L, N, H\) = \(6, 3, 5\), got \(4, 3, 5\)"),
]


def test_invalid_edits_raise_errors():
    layer = gg.LSTM(D, H)
    for name, (change, error, said) in ERRORS.items():
        with pytest.raises(error, match=said), gg.edit(layer, {name: change}):
            pass
    for change, error, said in ERRORS_AT_CALLS:
        with pytest.raises(error, match=said), gg.edit(layer, {"layer0.forward.f": change}):
            layer(torch.randn(L, N, D))
    plain, said = torch.nn.Linear(2, 2), "must be or hold a recurrent layer of glassgate, got Linear"
    with pytest.raises(TypeError, match=said), gg.edit(plain, {}):
        pass
    with pytest.raises(TypeError, match="replace: values must be a tensor"):
        gg.replace(1.0)
    with (
        pytest.raises(ValueError, match="streams and sessions do not support edits"),
        gg.edit(layer, {"layer0.forward.f": gg.hold(1.0)}),
    ):
        layer.stream()

    class Sorts(gg.Cell):
        gates = ("f",)

        def step(self, a, s):
            return torch.sort(a.f)[0]

    sorts = gg.Recurrent(Sorts(), D, H)
    said = r"cell Sorts: step uses torch\.sort.* where nothing can be edited"
    with pytest.raises(TypeError, match=said), gg.edit(sorts, {"layer0.forward.h": gg.hold(1.0)}):
        pass


def test_ablation_separates_used_from_unused_parts():
    """The output reads only one direction, and only half of its units."""
    torch.manual_seed(0)
    layer = gg.GRU(D, 4, bidirectional=True)
    batches = [(noise(k, L, N, D).float(), LENGTHS) for k in range(2)]

    def loss(layer, batch):
        x, lengths = batch
        output = layer(x, lengths=lengths)[0]
        return (output[..., :2] - x[..., :2]).square().mean()

    with gg.engine("reference"):
        changes = gg.ablate(layer, batches, loss, groups=2)
        assert layer.training
        names = {
            f"layer0.{way}{part}" for way in ("forward", "reverse") for part in (".r", ".z", ".n", "", "[0:2]", "[2:4]")
        }
        assert set(changes) == names | {"layer0"}
        assert all(changes[name] == 0 for name in names if name.startswith("layer0.reverse"))
        assert changes["layer0"] == changes["layer0.forward"] == pytest.approx(changes["layer0.forward[0:2]"]) != 0
        expected_increase, states = 0.0, [layer(x, lengths=lengths)[0].detach() for x, lengths in batches]
        real = torch.arange(L)[:, None] < LENGTHS
        mean = torch.cat([output[real] for output in states]).mean(0)
        for (x, _), output in zip(batches, states, strict=True):
            held = torch.where(real[..., None], mean, 0.0)
            expected_increase += float(
                (held[..., :2] - x[..., :2]).square().mean() - (output[..., :2] - x[..., :2]).square().mean()
            )
        assert changes["layer0.forward"] == pytest.approx(expected_increase / 2, abs=1e-6)
        late = gg.ablate(layer, batches, loss, groups=[[0, 3]], steps=[-1])
    assert "layer0.forward[0, 3]" in late
    assert abs(late["layer0.forward"]) < abs(changes["layer0.forward"])
    assert "loss" in repr(changes)
    assert "<td><code>layer0.forward</code></td>" in changes._repr_html_()
