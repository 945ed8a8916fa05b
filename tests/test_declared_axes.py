"""Cells that declare axes: shapes of parameters and states, and the results of a layer."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import glassgate as gg


class DeltaRule(gg.Cell):
    gates = {"q": ("heads", "key"), "k": ("heads", "key"), "v": ("heads", "value"), "b": ("heads",)}
    state = {"h": ("heads", "value"), "S": ("heads", "key", "value")}
    recurrent = False

    def __init__(self, heads, key, value):
        self.heads, self.key, self.value = heads, key, value

    def step(self, a, s):  # a.k: (N, heads, key), s.S: (N, heads, key, value)
        k = a.k / a.k.square().sum(-1, keepdim=True).add(1e-6).sqrt()
        old = (k[..., None] * s.S).sum(-2)
        S = s.S + k[..., None] * (torch.sigmoid(a.b)[..., None] * (a.v - old))[..., None, :]
        return (a.q[..., None] * S).sum(-2), S


L, N, D, HEADS, KEY, VALUE = 5, 3, 6, 2, 4, 3


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return gg.Recurrent(DeltaRule(HEADS, KEY, VALUE), D, HEADS * VALUE, dtype=torch.float64)


def delta_rule(W, b, x, S):
    """The outputs and the last memory of one sequence (Schlag et al. 2021, arXiv:2102.11174)."""
    outputs = []
    for pre in x @ W.T + b:
        q, k, v, beta = np.split(pre, np.cumsum([HEADS * KEY, HEADS * KEY, HEADS * VALUE]))
        output, S = [], S.copy()
        for j in range(HEADS):
            kj = k[j * KEY : (j + 1) * KEY]
            kj = kj / np.sqrt((kj**2).sum() + 1e-6)
            vj = v[j * VALUE : (j + 1) * VALUE]
            S[j] += np.outer(kj, (vj - kj @ S[j]) / (1 + np.exp(-beta[j])))
            output.append(q[j * KEY : (j + 1) * KEY] @ S[j])
        outputs.append(np.concatenate(output))
    return np.array(outputs), S


def test_a_matrix_memory_equals_its_formula(layer):
    x, h_0 = torch.randn(L, N, D, dtype=torch.float64), torch.randn(1, N, HEADS * VALUE, dtype=torch.float64)
    S_0 = torch.randn(1, N, HEADS, KEY, VALUE, dtype=torch.float64)
    output, (h_n, S_n) = layer(x, (h_0, S_0))
    W, b = (p.detach().numpy() for p in layer.parameters())
    for n in range(N):
        expected, S = delta_rule(W, b, x[:, n].numpy(), S_0[0, n].numpy())
        assert np.abs(output[:, n].detach().numpy() - expected).max() < 1e-12
        assert np.abs(S_n[0, n].detach().numpy() - S).max() < 1e-12
    assert torch.equal(h_n[0], output[-1])


def test_forms_of_input_agree(layer):
    x = torch.randn(L, N, D, dtype=torch.float64)
    lengths, resets = [L, 2, 0], torch.rand(L, N) < 0.3
    output, (_, S), states = layer(x, lengths=lengths, resets=resets, return_states=True)
    assert states["layer0.forward.S"].shape == (L, N, HEADS, KEY, VALUE)
    assert torch.equal(S[0, 0], states["layer0.forward.S"][-1, 0])
    assert not output[2:, 1].any()
    assert not S[0, 2].any()
    packed, (_, S_packed) = layer(pack_sequence([x[:, 0], x[:2, 1]]))
    plain, (_, S_plain) = layer(x[:, 0])
    assert S_plain.shape == (1, HEADS, KEY, VALUE)
    torch.testing.assert_close(S_packed[0, 0], S_plain[0])
    torch.testing.assert_close(packed.data[[0, 2, 4, 5, 6]], plain)
    stream = layer.stream(N)
    torch.testing.assert_close(torch.stack([stream.step(x_t).clone() for x_t in x]), layer(x)[0])


def test_structures(layer):
    x = torch.randn(N, L, D)
    options = {"num_layers": 2, "bidirectional": True, "batch_first": True, "learn_initial_state": True}
    stack = gg.Recurrent(DeltaRule(HEADS, KEY, VALUE), D, HEADS * VALUE, **options, zoneout={"S": 0.2}, recompute=True)
    output, (h, S) = stack(x)
    assert (output.shape, h.shape) == ((N, L, 2 * HEADS * VALUE), (4, N, HEADS * VALUE))
    assert (S.shape, stack.S_0_l1.shape) == ((4, N, HEADS, KEY, VALUE), (HEADS, KEY, VALUE))
    output.sum().backward()
    # No step reads h, so its learned initial value has no gradient.
    assert all(p.grad is not None for name, p in stack.named_parameters() if not name.startswith("h_0"))
    twin = copy.deepcopy(stack).eval()
    twin.load_state_dict(stack.state_dict())
    torch.testing.assert_close(twin(x, (h, S))[0], stack.eval()(x, (h, S))[0])


def test_compiled_graphs(layer):
    torch._dynamo.reset()  # the limit of graphs counts those of all tests together
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    for sequences in (N, 0):
        x = torch.randn(3, sequences, D, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), layer(x))


def test_gradients(layer):
    x = torch.randn(3, 2, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x)[0], (x, *layer.parameters()), fast_mode=True)


def test_recordings_have_the_axes(layer):
    x = torch.randn(L, N, D, dtype=torch.float64)
    with gg.record(layer) as tape:
        output, _ = layer(x, lengths=[L, 2, 1])
    output.sum().backward()
    assert tape["layer0.forward.S"].shape == tape.grad["layer0.forward.S"].shape == (L, N, HEADS, KEY, VALUE)
    assert tape["layer0.forward.old"].shape == (L, N, HEADS, VALUE)
    assert "24 units over 5 steps" in str(tape.plot("layer0.forward.S"))
    assert "layer0.forward.S" in tape._repr_html_()
    assert tape.half_life()["layer0.forward.S"].shape == (HEADS * KEY * VALUE,)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("name", ["old", "k", "S", "h"])
def test_edits_of_any_named_value(layer, engine, name):
    """A held element has its value at the held steps, a scaled one a multiple. Values before the edit do not change."""
    x, value = torch.randn(L, N, D, dtype=torch.float64), f"layer0.forward.{name}"
    with gg.record(layer) as before:
        output, _ = layer(x)
    last = before[value].flatten(2).shape[2] - 1
    changes = [gg.scale(0.5, units=[0], steps=slice(1, None)), gg.hold(0.3, units=[last], steps=slice(1, 3))]
    with gg.engine(engine), gg.edit(layer, {value: changes}), gg.record(layer) as tape:
        edited, _ = layer(x)
    was, now = before[value].flatten(2), tape[value].flatten(2)
    torch.testing.assert_close(now[0], was[0])
    torch.testing.assert_close(now[1, :, 0], 0.5 * was[1, :, 0])
    assert bool((now[1:3, :, last] == 0.3).all())
    assert not torch.allclose(edited[1:], output[1:])
    torch.testing.assert_close(edited[0], output[0])


def test_patched_states_restore_a_call(layer):
    x = torch.randn(2, L, N, D, dtype=torch.float64)
    with gg.record(layer) as tape:
        output, _ = layer(x[0])
    with gg.edit(layer, gg.patch(tape, ["layer0.forward.h", "layer0.forward.S"], steps=2)):
        patched, _ = layer(x[1])
    torch.testing.assert_close(patched[2], output[2])
    increase = gg.ablate(layer, [x[0]], lambda layer, x: layer(x)[0].square().mean())
    assert {"layer0.forward.k", "layer0.forward.old", "layer0.forward.S", "layer0.forward"} <= {*increase}


class WithoutSize(gg.Cell):
    gates = ("i",)
    state = {"h": ("units",), "S": ("key",)}


@pytest.mark.parametrize(
    ("message", "make"),
    [
        (r"hidden_size must be heads \* value = 6", lambda: gg.Recurrent(DeltaRule(2, 4, 3), 6, 8)),
        (r"must be an integer above zero, got self.key = 0", lambda: gg.Recurrent(DeltaRule(2, 0, 3), 6, 6)),
        (r"proj_size needs an output", lambda: gg.Recurrent(DeltaRule(2, 4, 3), 6, 6, proj_size=2)),
        (r"axes must be a tuple of names or sizes", lambda: type("A", (gg.Cell,), {"gates": {"i": "key"}})),
        (r"axis 'key' of state 'S' has no size; set it", lambda: gg.Recurrent(WithoutSize(), 3, 4)),
    ],
)
def test_errors(message, make):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_wrong_states(layer):
    x = torch.randn(L, N, D, dtype=torch.float64)
    states = x.new_zeros(1, N, 6), x.new_zeros(1, N, HEADS, KEY, VALUE + 1)
    message = r"S_0 must be \(num_layers \* D, N, heads, key, value\) = \(1, 3, 2, 4, 3\)"
    with pytest.raises(gg.ShapeError, match=message):
        layer(x, states)
    assert gg.explain(layer, x).engine == "cpu"


def test_states_that_do_not_fit_into_memory():
    layer = gg.Recurrent(DeltaRule(64, 256, 256), 4, 64 * 256)
    message = (
        r"states of DeltaRule.* need \d+.* GiB, and this machine has .* GiB; "
        r"they are S \(heads, key, value\) = \(64, 256, 256\), for N = 9000"
    )
    with pytest.raises(MemoryError, match=message):
        layer(torch.zeros(200, 9000, 4))


class Experts(gg.Cell):
    gates = {"h": ("units",)}
    parameters = {"W": gg.Parameter(axes=(4096, "units", "units"))}

    def step(self, a, s, p):
        return torch.tanh(a.h + (s.h[:, None] @ p.W.mean(0))[:, 0])


def test_parameters_that_do_not_fit_into_memory():
    message = r"parameters of Experts\(\) need 1\d+.\d GiB, and .*; the largest is W_l0 \(4096, 8192, 8192\)"
    with pytest.raises(MemoryError, match=message):
        gg.Recurrent(Experts(), 4, 8192)


def test_a_cell_computes_one_step(layer):
    cell = gg.RecurrentCell(layer.cell, D, HEADS * VALUE, dtype=torch.float64)
    cell.load_state_dict({name.removesuffix("_l0"): v for name, v in layer.state_dict().items()})
    x = torch.randn(2, N, D, dtype=torch.float64)
    output, (_, S) = layer(x)
    torch.testing.assert_close(cell(x[1], cell(x[0]))[0], output[1])
    assert cell(x[1, 0])[1].shape == S.shape[2:]


def test_check_runs_on_declared_axes():
    report = str(gg.check(DeltaRule(2, 4, 3)))
    assert "FAIL" not in report
    assert "outputs and gradients of the cpu engine equal the reference's" in report
    assert "outputs and gradients of the cpu engine equal the reference's" in str(gg.check(Skip()))

    class Sorted(DeltaRule):
        def step(self, a, s):
            return a.v.sort(-1)[0], s.S

    assert "runs only on the reference engine: cell Sorted: step uses torch.sort" in str(gg.check(Sorted(2, 4, 3)))


class Skip(gg.Cell):
    """A network with a second connection from 3 steps ago."""

    gates = ("i",)
    delays = {"old": ("h", 3)}

    def step(self, a, s):
        return torch.tanh(a.i + 0.5 * s.old)


def test_delayed_states():
    torch.manual_seed(0)
    layer, x = gg.Recurrent(Skip(), D, 4, dtype=torch.float64), torch.randn(L, N, D, dtype=torch.float64)
    outputs = [torch.zeros(N, 4, dtype=torch.float64)] * 3
    for x_t in x:
        pre = x_t @ layer.weight_ih_l0.T + layer.bias_ih_l0 + outputs[-1] @ layer.weight_hh_l0.T + layer.bias_hh_l0
        outputs.append(torch.tanh(pre + 0.5 * outputs[-3]))
    output, (_, old) = layer(x)
    torch.testing.assert_close(output, torch.stack(outputs[3:]))
    torch.testing.assert_close(old[0], torch.stack(outputs[:-4:-1], 1))
    first, hx = layer(x[:2])
    torch.testing.assert_close(torch.cat([first, layer(x[2:], hx)[0]]), output)
    with pytest.raises(ValueError, match=r"zoneout of 'h' must be 0"):
        gg.Recurrent(Skip(), D, 4, zoneout=0.1)
    with pytest.raises(ValueError, match=r"delays must be a dict .*'h', 5\)}, got 'old': \('h', 1\)"):
        type("A", (Skip,), {"delays": {"old": ("h", 1)}})
