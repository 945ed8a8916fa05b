"""Passes that no cell needs yet: a state of another width, and states with two axes of units (mLSTM)."""

import torch
from torch import Tensor

from glassgate.engines.axes import Axis
from glassgate.engines.lowering.builder import Builder
from glassgate.engines.lowering.evaluate import evaluate
from glassgate.engines.lowering.ir import Pass, Port, Role, Value
from tests.compare import check, measure, noise

T, N, D, H = 5, 3, 4, 6
K, A, B = 2, 3, 4
"""The number of heads, and the sizes of a key and of a value."""


def weight(name: str) -> Port:
    return Port(Role.WEIGHT, name)


def fast_and_slow() -> Pass:
    """h = tanh(W_x x + W_h h + W_s s), then s = 0.9 s + 0.1 tanh(W_f h): H fast units, 2H slow units."""
    units = [Axis("2H", (2, "H")), Axis("H"), Axis("J", ("H",)), Axis("S", ("2H",))]
    b = Builder("fast and slow", [Axis("T"), Axis("N"), *units, Axis("D")])
    x = b.input(Port(Role.DATA), ("T", "N", "D"))
    axes = {"W_x": ("H", "D"), "W_h": ("H", "J"), "W_s": ("H", "S"), "W_f": ("2H", "H")}
    w = {name: b.input(weight(name), own_axes) for name, own_axes in axes.items()}
    b.input(Port(Role.LENGTHS), "N", "int")
    h = b.carry("h_prev", b.input(Port(Role.INITIAL, "h"), ("N", "H"), name="h_0"))
    s = b.carry("s_prev", b.input(Port(Role.INITIAL, "s"), ("N", "2H"), name="s_0"))
    of_x = b.read(b.contract(x, w["W_x"], "D"))
    of_h = b.contract(b.reshape(h, ("N", "J")), w["W_h"], "J")
    total = b.elementwise("add", b.elementwise("add", of_x, of_h), b.contract(b.reshape(s, ("N", "S")), w["W_s"], "S"))
    new = b.elementwise("tanh", total, name="h")
    update = b.elementwise("tanh", b.contract(new, w["W_f"], "H"))
    slow = b.elementwise("add", b.elementwise("mul", s, 0.9), b.elementwise("mul", update, 0.1), name="s")
    every = b.write(new)
    final = b.end_loop({h: new, s: slow})
    return b.finish({Port(Role.STATES, "h"): every, Port(Role.FINAL, "h"): final[h], Port(Role.FINAL, "s"): final[s]})


def test_a_state_of_another_width_needs_one_declaration() -> None:
    shapes = {"W_x": (H, D), "W_h": (H, H), "W_s": (H, 2 * H), "W_f": (2 * H, H)}
    w = {name: noise(k, *shape) / 3 for k, (name, shape) in enumerate(shapes.items())}
    x, h, s, lengths = noise(8, T, N, D), noise(9, N, H), noise(10, N, 2 * H), torch.tensor([5, 0, 3])
    inputs = {weight(name): v for name, v in w.items()}
    inputs |= {Port(Role.DATA): x, Port(Role.INITIAL, "h"): h, Port(Role.INITIAL, "s"): s, Port(Role.LENGTHS): lengths}
    outputs = evaluate(fast_and_slow(), inputs, {"T": T, "N": N, "D": D, "H": H})
    every = []
    for t in range(T):
        active = (lengths > t)[:, None]
        new = torch.tanh(x[t] @ w["W_x"].T + h @ w["W_h"].T + s @ w["W_s"].T)
        h, s = torch.where(active, new, h), torch.where(active, 0.9 * s + 0.1 * torch.tanh(new @ w["W_f"].T), s)
        every.append(new * active)
    truth = {"states h": torch.stack(every), "final state h": h, "final state s": s}
    check({str(port): v for port, v in outputs.items()}, truth)


GATES = {"q": ("K", "A", "D"), "k": ("K", "A", "D"), "v": ("K", "B", "D"), "i": ("K", "D"), "f": ("K", "D")}
"""The axes of the weights of an mLSTM: queries, keys, values, and an input gate and a forget gate for each head."""
STATES = {"C": ("N", "K", "A", "B"), "n": ("N", "K", "A")}


class MatrixLSTM:
    """An mLSTM (Beck et al. 2024, arXiv:2405.04517) with sigmoid gates, written as two passes.

    C = f C + i k v^T,  n = f n + i k,  h = C^T q / max(|n^T q|, 1)
    """

    def __init__(self, backward: bool) -> None:
        axes = [Axis("T"), Axis("N"), Axis("K"), Axis("A"), Axis("B"), Axis("D")]
        self.b = b = Builder("mLSTM", axes, reverse=backward)
        self.x = b.input(Port(Role.DATA), ("T", "N", "D"), name="x")
        self.w = {name: b.input(weight(name), axes, name=f"W_{name}") for name, axes in GATES.items()}
        self.initial = {s: b.input(Port(Role.INITIAL, s), axes, name=f"{s}_0") for s, axes in STATES.items()}
        of_x = {name: b.contract(self.x, w, "D") for name, w in self.w.items()}
        of_x |= {gate: b.elementwise("sigmoid", of_x[gate]) for gate in "if"}
        self.q, self.k, self.v, self.i, self.f = (b.read(of_x[name]) for name in GATES)

    def add(self, x: Value, y: Value, name: str = "") -> Value:
        return self.b.elementwise("add", x, y, name=name)

    def mul(self, x: Value, y: Value) -> Value:
        return self.b.elementwise("mul", x, y)

    def forward(self) -> Pass:
        b = self.b
        C, n = (b.carry(f"{s}_prev", v) for s, v in self.initial.items())
        key = self.mul(self.i, self.k)
        C_new = self.add(self.mul(self.f, C), b.contract(key, self.v, ()), "C")
        n_new = self.add(self.mul(self.f, n), key, "n")
        h = b.elementwise("div", b.contract(C_new, self.q, "A"), self._scale(n_new)[1], name="h")
        outputs = {Port(Role.STATES, v.name): b.write(v) for v in (h, C_new, n_new)}
        final = b.end_loop({C: C_new, n: n_new})
        return b.finish(outputs | {Port(Role.FINAL, "C"): final[C], Port(Role.FINAL, "n"): final[n]})

    def _scale(self, n: Value) -> tuple[Value, Value]:
        product = self.b.contract(n, self.q, "A")
        return product, self.b.elementwise("maximum", self.b.elementwise("abs", product), 1.0)

    def backward(self) -> Pass:
        b, add, mul = self.b, self.add, self.mul
        every = {s: b.input(Port(Role.STATES, s), ("T", *axes), name=f"{s}_all") for s, axes in STATES.items()}
        C, n = (b.read(v) for v in every.values())
        C_prev, n_prev = (b.read(b.shift(every[s], self.initial[s], reverse=False)) for s in STATES)
        d_h = b.read(b.input(Port(Role.D_STATES, "h"), ("T", "N", "K", "B"), name="d_h"))
        d_final = {s: b.input(Port(Role.D_FINAL, s), axes, name=f"d_{s}_n") for s, axes in STATES.items()}
        d_C_next, d_n_next = (b.carry(f"d_{s}_next", v) for s, v in d_final.items())

        product, scale = self._scale(n)
        d_sum = b.elementwise("div", d_h, scale)
        d_scale = b.elementwise("neg", b.contract(d_sum, b.elementwise("div", b.contract(C, self.q, "A"), scale), "B"))
        large = b.elementwise("lt", 1.0, b.elementwise("abs", product))
        d_product = b.elementwise("where", large, mul(d_scale, b.elementwise("sign", product)), 0.0)
        d_C = add(d_C_next, b.contract(self.q, d_sum, ()))
        d_n = add(d_n_next, mul(self.q, d_product))
        of_key = add(b.contract(d_C, self.v, "B"), d_n)
        d_f = add(b.contract(d_C, C_prev, "AB"), b.contract(d_n, n_prev, "A"))
        d = {
            "q": add(b.contract(C, d_sum, "B"), mul(n, d_product)),
            "k": mul(self.i, of_key),
            "v": mul(self.i, b.contract(d_C, self.k, "A")),
            "i": self._sigmoid_gradient(b.contract(of_key, self.k, "A"), self.i),
            "f": self._sigmoid_gradient(d_f, self.f),
        }
        d_all = {name: b.write(value, f"d_{name}") for name, value in d.items()}
        final = b.end_loop({d_C_next: mul(self.f, d_C), d_n_next: mul(self.f, d_n)})
        outputs = {Port(Role.D_INITIAL, "C"): final[d_C_next], Port(Role.D_INITIAL, "n"): final[d_n_next]}
        d_x = []
        for name, axes in GATES.items():
            outputs[Port(Role.D_WEIGHT, name)] = b.contract(d_all[name], self.x, "TN")
            d_x.append(b.contract(d_all[name], self.w[name], axes[:-1]))
        outputs[Port(Role.D_DATA)] = add(add(add(d_x[0], d_x[1]), add(d_x[2], d_x[3])), d_x[4])
        return b.finish(outputs)

    def _sigmoid_gradient(self, d: Value, y: Value) -> Value:
        return self.mul(d, self.mul(y, self.b.elementwise("sub", 1.0, y)))


def reference_outputs(x: Tensor, w: dict[str, Tensor], C: Tensor, n: Tensor) -> dict[str, Tensor]:
    """The same equations in plain torch."""
    every: dict[str, list[Tensor]] = {"h": [], "C": [], "n": []}
    for x_t in x:
        q, k, v, i, f = (x_t @ w[name].flatten(0, -2).T for name in GATES)
        q, k, v = (u.unflatten(-1, (K, -1)) for u in (q, k, v))
        i, f = torch.sigmoid(i)[..., None], torch.sigmoid(f)[..., None]
        C = f[..., None] * C + (i * k)[..., None] * v[..., None, :]
        n = f * n + i * k
        scale = (n * q).sum(-1).abs().clamp(min=1)
        h = (C * q[..., None]).sum(-2) / scale[..., None]
        for name, value in (("h", h), ("C", C), ("n", n)):
            every[name].append(value)
    return {"states h": torch.stack(every["h"]), "final state C": C, "final state n": n}


def test_states_with_two_axes_and_their_gradients() -> None:
    extents = {"T": T, "N": N, "D": D, "K": K, "A": A, "B": B}
    shapes = {weight(name): axes for name, axes in GATES.items()} | {Port(Role.DATA): ("T", "N", "D")}
    shapes |= {Port(Role.INITIAL, state): axes for state, axes in STATES.items()}
    leaves = {port: noise(k, *(extents[a] for a in axes)) for k, (port, axes) in enumerate(shapes.items())}
    leaves = {port: v.requires_grad_() for port, v in leaves.items()}
    w = {name: leaves[weight(name)] for name in GATES}
    outputs = reference_outputs(leaves[Port(Role.DATA)], w, *(leaves[Port(Role.INITIAL, s)] for s in STATES))
    truth = measure(outputs, {str(port): v for port, v in leaves.items()})
    with torch.no_grad():
        forward = evaluate(MatrixLSTM(backward=False).forward(), leaves, extents)
        d = [noise(k, *v.shape) for k, v in enumerate(outputs.values())]
        ports = Port(Role.D_STATES, "h"), Port(Role.D_FINAL, "C"), Port(Role.D_FINAL, "n")
        given = leaves | forward | dict(zip(ports, d, strict=True))
        gradients = evaluate(MatrixLSTM(backward=True).backward(), given, extents)
    got = {str(port): v for port, v in forward.items() if str(port) in outputs}
    d_of = {Role.DATA: Role.D_DATA, Role.WEIGHT: Role.D_WEIGHT, Role.INITIAL: Role.D_INITIAL}
    got |= {f"grad {port}": gradients[Port(d_of[port.role], port.name)] for port in leaves}
    check(got, truth)
