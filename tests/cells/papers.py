"""The formulas of the classic cells and state spaces in NumPy, as their papers state them."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


tanh = np.tanh

# One step of each paper. x(name) is W x + b of a gate, u(name, v) is U v + b of a gate for a vector v, s contains the
# states by name, and p the parameters by name. Each function returns the new states.


def atr(x, u, s, p):
    i, f = sigmoid(x("p") + u("p", s["h"])), sigmoid(x("p") - u("p", s["h"]))
    return (i * x("p") + f * s["h"],)


def brc(x, u, s, p):
    a = 1 + tanh(x("b") + p["w_b"] * s["h"])
    c = sigmoid(x("c") + p["w_c"] * s["h"])
    return (c * s["h"] + (1 - c) * tanh(x("n") + a * s["h"]),)


def nbrc(x, u, s, p):
    a = 1 + tanh(x("b") + u("b", s["h"]))
    c = sigmoid(x("c") + u("c", s["h"]))
    return (c * s["h"] + (1 - c) * tanh(x("n") + a * s["h"]),)


def cfn(x, u, s, p):
    theta, eta = sigmoid(u("f", s["h"]) + x("f")), sigmoid(u("i", s["h"]) + x("i"))
    return (theta * tanh(s["h"]) + eta * tanh(x("n")),)


def light_ru(x, u, s, p):
    f = sigmoid(u("f", s["h"]) + x("f"))
    return ((1 - f) * s["h"] + f * tanh(x("n")),)


def ligru(x, u, s, p):
    z = sigmoid(x("z") + u("z", s["h"]))
    return (z * s["h"] + (1 - z) * np.maximum(x("n") + u("n", s["h"]), 0),)


def lstm_1997(x, u, s, p):
    squash_g, squash_h = lambda v: 4 / (1 + np.exp(-v)) - 2, lambda v: 2 / (1 + np.exp(-v)) - 1
    y_in, y_out = sigmoid(x("i") + u("i", s["h"])), sigmoid(x("o") + u("o", s["h"]))
    c = s["c"] + y_in * squash_g(x("g") + u("g", s["h"]))
    return y_out * squash_h(c), c


def minimal_rnn(x, u, s, p):
    z = tanh(x("z"))
    gate = sigmoid(u("u", s["h"]) + u("v", z))
    return (gate * s["h"] + (1 - gate) * z,)


def mut1(x, u, s, p):
    z, r = sigmoid(x("z")), sigmoid(x("r") + u("r", s["h"]))
    return (tanh(u("n", r * s["h"]) + tanh(x("n"))) * z + s["h"] * (1 - z),)


def mut2(x, u, s, p):
    z, r = sigmoid(x("z") + u("z", s["h"])), sigmoid(x("r") + u("r", s["h"]))
    return (tanh(u("n", r * s["h"]) + x("n")) * z + s["h"] * (1 - z),)


def mut3(x, u, s, p):
    z, r = sigmoid(x("z") + u("z", tanh(s["h"]))), sigmoid(x("r") + u("r", s["h"]))
    return (tanh(u("n", r * s["h"]) + x("n")) * z + s["h"] * (1 - z),)


def nas(x, u, s, p):
    sums = [x(f"o{k}") + u(f"o{k}", s["h"]) for k in range(1, 9)]
    sums[3] = x("o4") * u("o4", s["h"])
    relu = lambda v: np.maximum(v, 0)  # noqa: E731
    leaves = [f(v) for f, v in zip((sigmoid, relu, sigmoid, relu, tanh, sigmoid, tanh, sigmoid), sums, strict=True)]
    pairs = tanh(leaves[0] * leaves[1]), tanh(leaves[2] + leaves[3]), tanh(leaves[4] * leaves[5])
    c = tanh(pairs[0] + s["c"]) * pairs[1]
    return tanh(c * tanh(pairs[2] + sigmoid(leaves[6] + leaves[7]))), c


def ran(x, u, s, p):
    c = sigmoid(u("i", s["h"]) + x("i")) * x("n") + sigmoid(u("f", s["h"]) + x("f")) * s["c"]
    return tanh(c), c


def sru(x, u, s, p):
    f, r = sigmoid(x("f") + p["v_f"] * s["c"]), sigmoid(x("r") + p["v_r"] * s["c"])
    c = f * s["c"] + (1 - f) * x("n")
    return r * c + (1 - r) * x("k"), c


def star(x, u, s, p):
    k = sigmoid(x("k") + u("k", s["h"]))
    return (tanh((1 - k) * s["h"] + k * tanh(x("n"))),)


def ugrnn(x, u, s, p):
    g = sigmoid(u("g", s["h"]) + x("g"))
    return (g * s["h"] + (1 - g) * tanh(u("n", s["h"]) + x("n")),)


def antisymmetric(x, u, s, p):
    M = p["W"] - p["W"].T - 0.02 * np.eye(len(s["h"]))
    return (s["h"] + 0.1 * tanh(M @ s["h"] + x("h")),)


def gated_antisymmetric(x, u, s, p):
    M = p["W"] - p["W"].T - 0.02 * np.eye(len(s["h"]))
    return (s["h"] + 0.1 * sigmoid(M @ s["h"] + x("z")) * tanh(M @ s["h"] + x("h")),)


def cornn(x, u, s, p):
    y, z = s["h"], s["z"]
    z = z + 0.1 * tanh(u("z", y) + u("v", z) + x("z")) - 0.1 * 2 * y - 0.1 * 3 * z
    return y + 0.1 * z, z


def unicornn(x, u, s, p):
    rate = 0.1 * (0.5 + 0.5 * tanh(p["c"] / 2))
    z = s["z"] - rate * (tanh(p["w"] * s["h"] + x("z")) + 2 * s["h"])
    return s["h"] + rate * z, z


def lem(x, u, s, p):
    dt, dt_bar = (0.5 * sigmoid(u(gate, s["h"]) + x(gate)) for gate in ("t", "u"))
    z = (1 - dt) * s["z"] + dt * tanh(u("z", s["h"]) + x("z"))
    return (1 - dt_bar) * s["h"] + dt_bar * tanh(u("y", z) + x("y")), z


def fast_rnn(x, u, s, p):
    return (sigmoid(p["alpha"]) * tanh(x("n") + u("n", s["h"])) + sigmoid(p["beta"]) * s["h"],)


def fast_grnn(x, u, s, p):
    both = x("n") + u("n", s["h"])
    z = sigmoid(both + p["b_z"])
    return ((sigmoid(p["zeta"]) * (1 - z) + sigmoid(p["nu"])) * tanh(both) + z * s["h"],)


def rhn(x, u, s, p):
    state = s["h"]
    for depth in range(2):
        R_h, R_t = (u(gate, state) if depth == 0 else p["R"][0, k] @ state for k, gate in enumerate("nt"))
        h = tanh(x("n") + R_h if depth == 0 else R_h + p["b"][0, 0])
        t = sigmoid(x("t") + R_t if depth == 0 else R_t + p["b"][0, 1])
        state = h * t + state * (1 - t)
    return (state,)


def scrn(x, u, s, p):
    context = (1 - 0.9) * x("c") + 0.9 * s["c"]
    return sigmoid(p["P"] @ context + x("h") + u("h", s["h"])), context


def t_lstm(x, u, s, p):
    short = tanh(p["D"] @ s["c"] + p["b_d"])
    c = (s["c"] - short) + short * (1 / np.log(np.e + s["input"][-1]))
    i, f, g, o = (x(gate) + u(gate, s["h"]) for gate in "ifgo")
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def gru_d(x, u, s, p):
    value, m, delta = np.split(s["input"], 3)
    gamma_x = np.exp(-np.maximum(0, p["w"] * delta + p["b_w"]))
    h = np.exp(-np.maximum(0, p["D"] @ delta + p["b_d"])) * s["h"]
    filled = m * value + (1 - m) * gamma_x * s["l"] + (1 - m) * (1 - gamma_x) * p["mean"]
    r, z = (sigmoid(p["W"][k] @ filled + u(gate, h) + p["V"][k] @ m) for k, gate in enumerate("rz"))
    new = tanh(p["W"][2] @ filled + u("n", r * h) + p["V"][2] @ m)
    return (1 - z) * h + z * new, m * value + (1 - m) * s["l"]


def cfc(x, u, s, p):
    backbone = 1.7159 * tanh(0.666 * (x("b") + u("b", s["h"])))
    f, g, h = (H_k @ backbone + c_k for H_k, c_k in zip(p["H"], p["c"], strict=True))
    return (sigmoid(-f * s["input"][-1]) * tanh(g) + (1 - sigmoid(-f * s["input"][-1])) * tanh(h),)


def ltc(x, u, s, p):
    h, time = s["h"], s["input"][-1]
    for _ in range(3):
        f = sigmoid(x("f") + u("f", h))
        h = (h + time / 3 * f * p["A"]) / (1 + time / 3 * (1 / np.exp(p["log_tau"]) + f))
    return (h,)


def multiplicative_lstm(x, u, s, p):
    m = x("m") * u("m", s["h"])
    i, f, g, o = (x(gate) + u(gate, m) for gate in "ifgo")
    c = sigmoid(f) * s["c"] + sigmoid(i) * tanh(g)
    return tanh(c) * sigmoid(o), c


def residual_lstm(x, u, s, p):
    i = sigmoid(x("i") + u("i", s["h"]) + p["w_i"] * s["c"])
    f = sigmoid(x("f") + u("f", s["h"]) + p["w_f"] * s["c"])
    c = f * s["c"] + i * tanh(x("g") + u("g", s["h"]))
    o = sigmoid(x("o") + u("o", s["h"]) + p["w_o"] * c)
    return o * (u("k", tanh(c)) + x("k")), c


def phased_lstm(x, u, s, p):
    tau, shift, r_on = p["clock"]
    phi = np.mod(s["input"][-1] - shift, tau) / tau
    k = np.select([phi < r_on / 2, phi < r_on], [2 * phi / r_on, 2 - 2 * phi / r_on], 0.02 * phi)
    i, f, g, o = (x(gate) + u(gate, s["h"]) for gate in "ifgo")
    new = sigmoid(f + p["w_f"] * s["c"]) * s["c"] + sigmoid(i + p["w_i"] * s["c"]) * tanh(g)
    h = sigmoid(o + p["w_o"] * new) * tanh(new)
    return k * h + (1 - k) * s["h"], k * new + (1 - k) * s["c"]


def hyper_lstm(x, u, s, p):
    def norm(v, gain, shift):
        return (v - v.mean()) / np.sqrt(v.var() + 1e-5) * gain + shift

    def lstm(i, f, g, o, c, gain, shift):
        i, f, g, o = (norm(v, gain[k], shift[k]) for k, v in enumerate((i, f, g, o)))
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(norm(c, gain[4], shift[4])), c

    z = [[p["Z"][w, gate] @ s["m"] + (p["y"][w, gate] if w < 2 else 0) for gate in range(4)] for w in range(3)]
    d_h, d_x, d_b = ([p["D"][w, gate] @ z[w][gate] for gate in range(4)] for w in range(3))
    W_h, W_x = u("large", s["h"]).reshape(4, -1), x("large").reshape(4, -1)
    large = [d_h[gate] * W_h[gate] + d_x[gate] * W_x[gate] + d_b[gate] + p["b"][gate] for gate in range(4)]
    small = (x("small") + u("small", s["h"])).reshape(4, 3)
    small = [small[gate] + p["R"][gate] @ s["m"] for gate in range(4)]
    h, c = lstm(*large, s["c"], p["gain"], p["shift"])
    return h, c, *lstm(*small, s["n"], p["small_gain"], p["small_shift"])


def qrnn(x, u, s, p):
    f = sigmoid(x("f"))
    c = f * s["c"] + (1 - f) * tanh(x("n"))
    return sigmoid(x("o")) * c, c


def sgrn(x, u, s, p):
    f = sigmoid(x("n") + u("n", s["h"]))
    return (tanh((1 - f) * x("n") + f * s["h"]),)


def lmu(x, u, s, p):
    inner = x("u") + u("u", s["h"]) + p["e"] @ s["m"]
    m = p["A"] @ s["m"] + p["B"] * inner
    return tanh(x("h") + u("h", s["h"]) + p["W"] @ m), m


def lru(x, u, s, p):
    nu, theta, gamma = p["ring"]
    z = np.exp(-np.exp(nu) + 1j * np.exp(theta)) * (s["re"] + 1j * s["im"])
    z = z + np.exp(gamma) * (x("re") + 1j * x("im"))
    return ((p["C"][0] + 1j * p["C"][1]) @ z).real + x("d"), z.real, z.imag


def rglru(x, u, s, p):
    a = sigmoid(p["L"]) ** (8 * sigmoid(x("r")))
    return (a * s["h"] + np.sqrt(1 - a**2) * sigmoid(x("i")) * x("n"),)


def s4d(x, u, s, p):
    A, C, dt = -np.exp(p["A"][0]) + 1j * p["A"][1], p["C"][0] + 1j * p["C"][1], np.exp(p["log_dt"])[:, None]
    z = np.exp(dt * A) * (s["re"] + 1j * s["im"]) + (np.exp(dt * A) - 1) / A * x("u")[:, None]
    return 2 * (C * z).sum(1).real + p["D"] * x("u"), z.real, z.imag


def s5(x, u, s, p):
    A, C, dt = -np.exp(p["A"][0]) + 1j * p["A"][1], p["C"][0] + 1j * p["C"][1], np.exp(p["log_dt"])
    z = np.exp(dt * A) * (s["re"] + 1j * s["im"]) + (np.exp(dt * A) - 1) / A * (x("re") + 1j * x("im"))
    return 2 * (C @ z).real + x("d"), z.real, z.imag


PAPERS = {
    "HyperLSTM": hyper_lstm,
    "LMU": lmu,
    "LRU": lru,
    "LTC": ltc,
    "MultiplicativeLSTM": multiplicative_lstm,
    "PhasedLSTM": phased_lstm,
    "QRNN": qrnn,
    "RGLRU": rglru,
    "ResidualLSTM": residual_lstm,
    "S4D": s4d,
    "S5": s5,
    "SGRN": sgrn,
    "AntisymmetricRNN": antisymmetric,
    "CfC": cfc,
    "CoRNN": cornn,
    "FastGRNN": fast_grnn,
    "FastRNN": fast_rnn,
    "GRUD": gru_d,
    "GatedAntisymmetricRNN": gated_antisymmetric,
    "LEM": lem,
    "RHN": rhn,
    "SCRN": scrn,
    "TLSTM": t_lstm,
    "UnICORNN": unicornn,
    "ATR": atr,
    "BRC": brc,
    "CFN": cfn,
    "LSTM1997": lstm_1997,
    "LiGRU": ligru,
    "LightRU": light_ru,
    "MUT1": mut1,
    "MUT2": mut2,
    "MUT3": mut3,
    "MinimalRNN": minimal_rnn,
    "NAS": nas,
    "NBRC": nbrc,
    "RAN": ran,
    "SRU": sru,
    "STAR": star,
    "UGRNN": ugrnn,
}
OPTIONS = {
    "AntisymmetricRNN": {"epsilon": 0.1, "gamma": 0.02},
    "CfC": {"backbone": 3},
    "CoRNN": {"dt": 0.1, "gamma": 2.0, "epsilon": 3.0},
    "GatedAntisymmetricRNN": {"epsilon": 0.1, "gamma": 0.02},
    "HyperLSTM": {"hyper": 3, "embedding": 2},
    "LEM": {"dt": 0.5},
    "LMU": {"order": 3, "theta": 10.0},
    "LRU": {"modes": 3},
    "LTC": {"unfolds": 3},
    "PhasedLSTM": {"longest": 5.0, "leak": 0.02},
    "RHN": {"depth": 2},
    "S4D": {"modes": 3},
    "S5": {"modes": 3},
    "SCRN": {"context": 3, "alpha": 0.9},
    "UnICORNN": {"dt": 0.1, "alpha": 2.0},
}
"""The arguments of the cells. The formulas contain them as numbers."""
