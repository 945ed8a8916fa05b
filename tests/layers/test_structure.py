"""The options of a stack: sizes, merging, projection, residuals, dropout between layers, learned states."""

import pytest
import torch
from torch.nn.functional import dropout, linear

import glassgate as gg
from tests.compare import check, noise

DOUBLE = {"dtype": torch.float64}


def one_way(layer, index, direction, x, kind="lstm"):
    """Return the output of one direction of one layer, computed by `gg.functional`, in the order of time."""
    suffix = f"_l{index}" + "_reverse" * direction
    weights = [getattr(layer, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    output, _ = getattr(gg.functional, kind)(x.flip(0) if direction else x, None, *weights)
    return output.flip(0) if direction else output


MERGES = {
    "concat": lambda a, b: torch.cat([a, b], -1),
    "sum": lambda a, b: a + b,
    "mean": lambda a, b: (a + b) / 2,
}


@pytest.mark.parametrize("merge", MERGES)
def test_merged_directions_equal_two_separate_calls(engine, merge):
    layer = gg.LSTM(3, 4, 2, bidirectional=True, merge=merge, **DOUBLE)
    x = noise(1, 5, 2, 3)
    expected = x
    for k in range(2):
        expected = MERGES[merge](*(one_way(layer, k, d, expected) for d in (0, 1)))
    output, (h_n, c_n) = layer(x)
    check({"output": output.detach()}, {"output": expected.detach()})
    assert output.shape == (5, 2, layer.output_size)
    assert h_n.shape == c_n.shape == (4, 2, 4)


def test_directions_can_stay_separate():
    layer = gg.GRU(3, (4, 6), 2, bidirectional=True, merge="none", **DOUBLE)
    x = noise(1, 5, 2, 3)
    (forward, reverse), h_n = layer(x)
    expected = [one_way(layer, 1, d, one_way(layer, 0, d, x, "gru"), "gru") for d in (0, 1)]
    check(
        {"forward": forward.detach(), "reverse": reverse.detach()},
        {"forward": expected[0].detach(), "reverse": expected[1].detach()},
    )
    assert [h.shape for h in h_n] == [(2, 4), (2, 6)] * 2
    changed = x.clone()
    changed[3:] += 1
    assert torch.equal(layer(changed)[0][0][:3], forward[:3])
    assert not torch.equal(layer(changed)[0][1][:3], reverse[:3])


@pytest.mark.parametrize(
    ("hidden_size", "D", "widths"),
    [
        ([5, 7, 3], 1, [5, 7, 3]),
        ([5, (2, 4), 3], 2, [5, 5, 2, 4, 3, 3]),
        ((2, 6), 2, [2, 6] * 3),
        (4, 2, [4] * 6),
    ],
)
def test_sizes_can_differ_by_direction_and_layer(hidden_size, D, widths):
    layer = gg.LSTM(3, hidden_size, 3, bidirectional=D == 2, **DOUBLE)
    x = noise(1, 5, 2, 3)
    output, (h_n, c_n) = layer(x)
    assert [h.shape for h in h_n] == [c.shape for c in c_n] == [(2, w) for w in widths]
    assert isinstance(h_n, torch.Tensor) == (len(set(widths)) == 1)
    expected = x
    for k in range(3):
        expected = torch.cat([one_way(layer, k, d, expected) for d in range(D)], -1)
    check({"output": output.detach()}, {"output": expected.detach()})
    first, hx = layer(x[:2])
    if D == 1:
        second, _ = layer(x[2:], hx)
        check({"output": torch.cat([first, second]).detach()}, {"output": output.detach()})
    else:
        assert layer(x[2:], hx)[0].shape == (3, 2, layer.output_size)


def test_directions_of_different_size_equal_two_layers():
    both = gg.LSTM(3, (4, 6), bidirectional=True, **DOUBLE)
    x = noise(1, 5, 2, 3)
    output, (h_n, c_n) = both(x, lengths=[5, 3])
    for direction, part, reverse in ((0, output[..., :4], False), (1, output[..., 4:], True)):
        alone = gg.LSTM(3, (4, 6)[direction], **DOUBLE)
        state = {
            k.removesuffix("_reverse"): v for k, v in both.state_dict().items() if k.endswith("_reverse") == reverse
        }
        alone.load_state_dict(state)
        for n, length in enumerate((5, 3)):
            row = x[:length, n].flip(0) if reverse else x[:length, n]
            expected, (h, c) = alone(row)
            check(
                {"output": part[:length, n].detach(), "h": h_n[direction][n].detach(), "c": c_n[direction][n].detach()},
                {
                    "output": (expected.flip(0) if reverse else expected).detach(),
                    "h": h[0].detach(),
                    "c": c[0].detach(),
                },
            )


def test_projected_rnn_equals_a_manual_loop():
    layer = gg.RNN(3, 5, proj_size=2, **DOUBLE)
    x, h = noise(1, 6, 2, 3), noise(2, 2, 2)
    output, h_n = layer(x, h[None])
    expected = []
    for x_t in x:
        a = linear(x_t, layer.weight_ih_l0, layer.bias_ih_l0) + linear(h, layer.weight_hh_l0, layer.bias_hh_l0)
        h = linear(torch.tanh(a), layer.weight_hr_l0)
        expected.append(h)
    check(
        {"output": output.detach(), "h_n": h_n.detach()},
        {"output": torch.stack(expected).detach(), "h_n": h[None].detach()},
    )


def test_projected_gru_equals_a_manual_loop():
    layer = gg.GRU(3, 5, proj_size=2, **DOUBLE)
    assert repr(layer) == "GRU(3, 5, proj_size=2)"
    x, h, m = noise(1, 6, 2, 3), noise(2, 2, 2), noise(3, 2, 5)
    output, (h_n, m_n) = layer(x, (h[None], m[None]))
    again, _ = gg.functional.gru(x, (h, m), *layer.parameters())
    expected = []
    for x_t in x:
        ih, hh = linear(x_t, layer.weight_ih_l0, layer.bias_ih_l0), linear(h, layer.weight_hh_l0, layer.bias_hh_l0)
        (r, z), (ih_n, hh_n) = torch.sigmoid(ih + hh).chunk(3, -1)[:2], (ih[:, 10:], hh[:, 10:])
        m = (1 - z) * torch.tanh(ih_n + r * hh_n) + z * m
        h = linear(m, layer.weight_hr_l0)
        expected.append(h)
    check(
        {"output": output.detach(), "functional": again.detach(), "h_n": h_n.detach(), "m_n": m_n.detach()},
        {
            "output": torch.stack(expected).detach(),
            "functional": torch.stack(expected).detach(),
            "h_n": h[None].detach(),
            "m_n": m[None].detach(),
        },
    )


def test_projection_to_one_unit_does_not_broadcast():
    assert gg.GRU(3, 5, 2, bidirectional=True, proj_size=1)(torch.randn(4, 2, 3))[1][1].shape == (4, 2, 5)
    with pytest.raises(ValueError, match="GRUv3: the reset gate acts on the units of h, so h cannot be projected"):
        gg.GRU(3, 5, proj_size=1, cell=gg.cells.GRUv3())


def test_residual_adds_where_widths_agree():
    layer = gg.LSTM(3, [4, 4, 6, 6], 4, residual=True, **DOUBLE)
    x = noise(1, 5, 2, 3)
    expected = one_way(layer, 0, 0, x)
    expected = one_way(layer, 1, 0, expected) + expected
    expected = one_way(layer, 2, 0, expected)
    expected = one_way(layer, 3, 0, expected) + expected
    check({"output": layer(x)[0].detach()}, {"output": expected.detach()})


def test_residual_keeps_padding_zero():
    output, _ = gg.GRU(3, 4, 3, residual=True, bidirectional=True)(torch.randn(5, 3, 3), lengths=[5, 0, 2])
    assert not output[:, 1].any()
    assert not output[2:, 2].any()
    assert output[:2, 2].all()


def test_residual_goes_around_dropout():
    layer = gg.LSTM(3, 4, 2, residual=True, dropout=1.0, **DOUBLE)
    x = noise(1, 5, 2, 3)
    first = one_way(layer, 0, 0, x)
    expected = first + one_way(layer, 1, 0, torch.zeros_like(first))
    check({"output": layer(x)[0].detach()}, {"output": expected.detach()})


class TestDropout:
    x = noise(1, 5, 2, 3)

    def layer(self, rate, **options):
        return gg.LSTM(3, 4, 2, dropout=rate, **options, **DOUBLE)

    def test_dropout_acts_between_layers_in_training(self, engine):
        layer = self.layer(0.5)
        torch.manual_seed(7)
        output, _ = layer(self.x)
        torch.manual_seed(7)
        between = dropout(one_way(layer, 0, 0, self.x).flatten(0, 1), 0.5).view(5, 2, 4)
        check({"output": output.detach()}, {"output": one_way(layer, 1, 0, between).detach()})

    def test_dropout_is_off_in_eval_mode(self, engine):
        layer = self.layer(0.5).eval()
        expected = one_way(layer, 1, 0, one_way(layer, 0, 0, self.x))
        check({"output": layer(self.x)[0].detach()}, {"output": expected.detach()})

    def test_a_rate_of_zero_drops_nothing(self, engine):
        layer = self.layer(0.0)
        assert torch.equal(layer(self.x)[0], layer.eval()(self.x)[0])

    def test_a_rate_of_one_drops_everything(self, engine):
        layer = self.layer(1.0)
        expected = one_way(layer, 1, 0, torch.zeros(5, 2, 4, dtype=torch.float64))
        check({"output": layer(self.x)[0].detach()}, {"output": expected.detach()})

    def test_the_same_seed_gives_the_noise_of_torch(self, engine):
        layer, stock = self.layer(0.4), torch.nn.LSTM(3, 4, 2, dropout=0.4, **DOUBLE)
        stock.load_state_dict(layer.state_dict())
        torch.manual_seed(3)
        ours = layer(self.x)[0].detach()
        torch.manual_seed(3)
        check({"output": ours}, {"output": stock(self.x)[0].detach()})


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"dropout": 0.5}, r"dropout acts between layers, so dropout=0\.5 does nothing with num_layers=1"),
        ({"residual": True}, "first layer has no residual connection, so residual=True does nothing with num_layers=1"),
        ({"merge": "sum"}, "merge combines two directions, so merge='sum' does nothing with bidirectional=False"),
        (
            {"variational_dropout": True},
            r"uses one dropout mask per sequence, so it does nothing with dropout=0\.0",
        ),
        (
            {"recurrent_dropout_on": "state"},
            r"recurrent_dropout_on='state' does nothing with recurrent_dropout=0\.0, the default",
        ),
    ],
    ids=str,
)
def test_options_without_effect_warn(options, warning):
    with pytest.warns(UserWarning, match=f"^GRU: .*{warning}$") as caught:
        gg.GRU(3, 4, **options)
    assert len(caught) == 1
    everything = {"dropout": 0.5, "recurrent_dropout": 0.1, "num_layers": 2, "bidirectional": True, **options}
    gg.GRU(3, 4, **everything)


class TestLearnedInitialState:
    @pytest.fixture
    def layer(self):
        layer = gg.LSTM(3, (4, 5), 2, bidirectional=True, learn_initial_state=True, **DOUBLE)
        for k, weight in enumerate(layer.parameters()):
            weight.data = noise(k, *weight.shape)
        return layer

    def test_learned_states_start_at_zero(self):
        layer = gg.GRU(3, 4, learn_initial_state=True)
        assert not layer.h_0_l0.any()

    def test_a_learned_state_replaces_hx(self, layer):
        x = noise(60, 6, 3, 3)
        states = [
            [getattr(layer, f"{s}_0_l{k}{suffix}").expand(3, -1) for k in (0, 1) for suffix in ("", "_reverse")]
            for s in ("h", "c")
        ]
        resets, lengths = noise(61, 6, 3) > 0.5, [6, 0, 2]
        learned, final = layer(x, lengths=lengths, resets=resets)
        given, expected = layer(x, (states[0], states[1]), lengths=lengths, resets=resets)
        assert torch.equal(learned, given)
        for a, b in zip(final, expected, strict=True):
            assert all(torch.equal(u, v) for u, v in zip(a, b, strict=True))

    def test_initial_states_are_learned(self, layer):
        layer(noise(60, 6, 3, 3))[0].sum().backward()
        assert all(p.grad.any() for name, p in layer.named_parameters() if "_0_l" in name)

    def test_hx_replaces_learned_states(self, layer):
        zero = tuple([torch.zeros(3, w, dtype=torch.float64) for w in (4, 5, 4, 5)] for _ in "hc")
        output, _ = layer(noise(60, 6, 3, 3), zero)
        output.sum().backward()
        assert layer.h_0_l0.grad is None


@pytest.mark.parametrize("merge", ["concat", "none"])
def test_return_states_returns_every_state_at_every_step(merge):
    layer = gg.LSTM(3, 4, 2, bidirectional=True, merge=merge, **DOUBLE)
    x = noise(1, 5, 3, 3)
    output, (h_n, c_n), states = layer(x, lengths=[5, 3, 0], return_states=True)
    assert list(states) == [f"layer{k}.{way}.{s}" for k in (0, 1) for way in ("forward", "reverse") for s in "hc"]
    last = torch.cat([states["layer1.forward.h"], states["layer1.reverse.h"]], -1)
    assert torch.equal(last, output if merge == "concat" else torch.cat(output, -1))
    assert torch.equal(states["layer0.forward.c"][2, 1], c_n[0, 1])
    assert torch.equal(states["layer1.reverse.c"][0, :2], c_n[3, :2])
    assert torch.equal(states["layer0.reverse.h"][0, :2], h_n[1, :2])
    assert not any(v[3:, 1].any() or v[:, 2].any() for v in states.values())


class Held(gg.Cell):
    """A cell whose second state never changes."""

    gates = ("a",)
    state = ("h", "m")

    def step(self, a, s):
        return torch.tanh(a.a), s.m


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("steps", [1, 3])
def test_final_states_may_be_modified(name, steps):
    layer, x, hx = gg.Recurrent(Held(), 3, 4), noise(1, steps, 2, 3).float(), (torch.ones(1, 2, 4), torch.ones(1, 2, 4))
    with gg.engine(name), torch.no_grad():
        output, final = layer(x, hx)
    before = output.clone()
    for state in final:
        state.zero_()
    assert torch.equal(output, before)
    assert all(bool((state == 1).all()) for state in hx)


@pytest.mark.parametrize("name", ["reference", "cpu", "torch"])
def test_writing_to_final_states_does_not_change_gradients(name):
    gradients = []
    for write in (False, True):
        torch.manual_seed(0)
        layer, x = gg.LSTM(3, 4), noise(1, 5, 2, 3).float().requires_grad_()
        with gg.engine(name):
            output, final = layer(x)
        for state in final if write else ():
            state[:, 0] = 0.0
        output.square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in layer.parameters())])
    assert all(map(torch.equal, *gradients))


def test_a_call_does_not_change_earlier_results():
    layer, x = gg.LSTM(3, 4, bidirectional=True), noise(1, 5, 2, 3).float()
    with gg.engine("cpu"):
        first, _ = layer(x)
        kept = first.detach().clone()
        expected = torch.autograd.grad(first.square().sum(), layer.weight_hh_l0, retain_graph=True)
        layer(2 * x)[0].sum().backward()
    assert torch.equal(first, kept)
    assert all(map(torch.equal, torch.autograd.grad(first.square().sum(), layer.weight_hh_l0), expected))
