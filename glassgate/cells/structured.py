"""Classic cells with structured or additional matrices, oscillators, and cells that read the time between steps.

In the equations, `...` is the pre-activation of the gate, W_ih x + b_ih + W_hh h_prev + b_hh. W_x x is W_ih x + b_ih
alone, and W_h h is W_hh h + b_hh alone. Each gate has its own rows of these matrices.

`classic.py` contains the other classic cells.
"""

import math

from torch import exp, log, relu, sigmoid, tanh

from glassgate.cell import Cell, no_projection
from glassgate.cell_axes import Gate, Parameter, draw_matrix
from glassgate.cells.classic import ClassicCell

UNITS, FEATURES, SCALAR = ("units",), ("features",), ()


class AntisymmetricRNN(Cell):
    """The AntisymmetricRNN (Chang et al. 2019, arXiv:1902.09689), a stable ordinary differential equation.

    M = W - W^T - gamma 1,  h = h_prev + epsilon tanh(M h_prev + W_x x), where W is a parameter

    Args:
        epsilon: the step size.
        gamma: the strength of the diffusion.
    """

    gates = {"h": UNITS}
    state = {"h": UNITS}
    parameters = {"W": Parameter(axes=("units", "units"))}
    recurrent = False
    projected = no_projection

    def __init__(self, epsilon: float = 0.01, gamma: float = 0.01) -> None:
        self.epsilon, self.gamma = epsilon, gamma

    def flow(self, s, p):
        """Compute M h_prev."""
        return s.h @ (p.W - p.W.mT).mT - self.gamma * s.h

    def step(self, a, s, p):
        return s.h + self.epsilon * a.update(tanh(self.flow(s, p) + a.h))


class GatedAntisymmetricRNN(AntisymmetricRNN):
    """The AntisymmetricRNN with an input gate (Chang et al. 2019, arXiv:1902.09689).

    M = W - W^T - gamma 1,  z = sigmoid(M h_prev + W_x x),
    h = h_prev + epsilon z tanh(M h_prev + W_x x), where W is a parameter

    Args:
        epsilon, gamma: as in `AntisymmetricRNN`.
    """

    gates = {"z": UNITS, "h": UNITS}

    def step(self, a, s, p):
        flow = self.flow(s, p)
        return s.h + self.epsilon * sigmoid(flow + a.z) * a.update(tanh(flow + a.h))


class CoRNN(ClassicCell):
    """The coupled oscillatory network (Rusch and Mishra 2020, arXiv:2010.00951, equation 3, explicit form).

    z = z_prev + dt (tanh(W_x x + W_h h_prev + W_v z_prev) - gamma h_prev - epsilon z_prev),  h = h_prev + dt z

    W_h and W_v are the rows of z and v in W_hh. The rows of v in W_ih have no effect.

    Args:
        dt: the step size.
        gamma: the squared frequency of the oscillators.
        epsilon: their damping.
    """

    gates = ("z", "v")
    state = ("h", "z")

    def __init__(self, dt: float = 0.05, gamma: float = 1.0, epsilon: float = 1.0) -> None:
        self.dt, self.gamma, self.epsilon = dt, gamma, epsilon

    def step(self, a, s):
        force = tanh(a.z + a.hh(s.z).v)
        z = s.z + self.dt * (a.update(force) - self.gamma * s.h - self.epsilon * s.z)
        return s.h + self.dt * z, z


class UnICORNN(ClassicCell):
    """The undamped independent controlled oscillatory network (Rusch and Mishra 2021, arXiv:2103.05487).

    z = z_prev - dt sigmoid(c) (tanh(w h_prev + W_x x) + alpha h_prev),  h = h_prev + dt sigmoid(c) z

    w and c are parameters with one number per unit.

    Args:
        dt: the step size.
        alpha: the squared frequency of the oscillators.
    """

    gates = ("z",)
    state = ("h", "z")
    parameters = {
        "w": Parameter(lambda p: p.uniform_(0, 1)),
        "c": Parameter(lambda p: p.uniform_(-0.1, 0.1)),
    }
    recurrent = False

    def __init__(self, dt: float = 0.05, alpha: float = 1.0) -> None:
        self.dt, self.alpha = dt, alpha

    def step(self, a, s, p):
        rate = self.dt * sigmoid(p.c)
        z = s.z - rate * (a.update(tanh(a.z + p.w * s.h)) + self.alpha * s.h)
        return s.h + rate * z, z


class LEM(ClassicCell):
    """The long expressive memory (Rusch et al. 2021, arXiv:2110.04744, equation 3): two learned time scales.

    t = dt sigmoid(...),  u = dt sigmoid(...),  z = (1 - t) z_prev + t tanh(W_x x + W_h h_prev),
    h = (1 - u) h_prev + u tanh(W_x x + W_h z)

    t and u are the two time steps of the paper, the second with a bar.

    Args:
        dt: the largest time step.
    """

    gates = ("t", "u", "z", "y")
    state = ("h", "z")

    def __init__(self, dt: float = 1.0) -> None:
        self.dt = dt

    def step(self, a, s):
        t, u = self.dt * sigmoid(a.t), self.dt * sigmoid(a.u)
        z = (1 - t) * s.z + t * a.update(tanh(a.z))
        return (1 - u) * s.h + u * tanh(a.ih.y + a.hh(z).y), z


class FastRNN(Cell):
    """FastRNN (Kusupati et al. 2018, arXiv:1901.02358): a residual connection with two trained scalars.

    n = tanh(...),  h = sigmoid(alpha) n + sigmoid(beta) h_prev

    alpha and beta start at -3 and 3, as in the code of the authors. RecurrentLayers.jl exchanges the two values.
    """

    gates = {"n": UNITS}
    state = {"h": UNITS}
    parameters = {"alpha": Parameter(-3.0, axes=SCALAR), "beta": Parameter(3.0, axes=SCALAR)}
    projected = no_projection

    def step(self, a, s, p):
        return sigmoid(p.alpha) * a.update(tanh(a.n)) + sigmoid(p.beta) * s.h


class FastGRNN(Cell):
    """FastGRNN (Kusupati et al. 2018, arXiv:1901.02358): gate and candidate have the same weights.

    z = sigmoid(... + b_z),  n = tanh(...),  h = (sigmoid(zeta) (1 - z) + sigmoid(nu)) n + z h_prev

    b_z is a parameter with one number per unit. The scalars zeta and nu start at 1 and -4, as in the code of the
    authors.
    """

    gates = {"n": UNITS}
    state = {"h": UNITS}
    parameters = {
        "b_z": Parameter(),
        "zeta": Parameter(1.0, axes=SCALAR),
        "nu": Parameter(-4.0, axes=SCALAR),
    }
    projected = no_projection

    def step(self, a, s, p):
        z, n = sigmoid(a.n + p.b_z), tanh(a.n)
        return (sigmoid(p.zeta) * (1 - z) + sigmoid(p.nu)) * a.update(n) + z * s.h


class RHN(ClassicCell):
    """The recurrent highway network (Zilly et al. 2016, arXiv:1607.03474), with coupled gates.

    n_1 = tanh(...),  t_1 = sigmoid(...),  s_1 = t_1 n_1 + (1 - t_1) h_prev, and for l = 2 to depth:
    n_l = tanh(R s_(l-1) + b),  t_l = sigmoid(R s_(l-1) + b),  s_l = t_l n_l + (1 - t_l) s_(l-1). h is the last s.

    Each n_l and t_l has its own block of the parameters R (depth - 1, 2, units, units) and b (depth - 1, 2, units).

    Args:
        depth: the number of highway layers within a step.
    """

    gates = ("n", "t")

    def __init__(self, depth: int = 3) -> None:
        if depth < 1:
            raise ValueError(f"RHN: depth must be 1 or more, got {depth}")
        self.depth, self.deeper = depth, depth - 1
        if self.deeper:
            self.parameters = {
                "R": Parameter(axes=("deeper", 2, "units", "units")),
                "b": Parameter(0.0, axes=("deeper", 2, "units")),
            }

    def step(self, a, s, p=None):
        h = self.highway(s.h, a.n, a.t, a)
        for layer in range(self.deeper):
            n, t = (h @ p.R[layer, k].mT + p.b[layer, k] for k in (0, 1))
            h = self.highway(h, n, t, a)
        return h

    def highway(self, s, n, t, a):
        """Compute one highway layer from the pre-activations of n and t."""
        t = sigmoid(t)
        return t * a.update(tanh(n)) + (1 - t) * s


class SCRN(Cell):
    """The structurally constrained recurrent network (Mikolov et al. 2014, arXiv:1412.7753), with a slow context c.

    c = (1 - alpha) W_x x + alpha c_prev,  h = sigmoid(... + P c), where P is a parameter

    The paper calls the context s. Its output reads both states: U h + V s.

    Args:
        context: the size of the context.
        alpha: the fraction of the context that a step keeps.
    """

    gates = {"c": Gate(("context",), reads="x"), "h": UNITS}
    state = {"h": UNITS, "c": ("context",)}
    parameters = {"P": Parameter(axes=("units", "context"))}
    projected = no_projection

    def __init__(self, context: int = 10, alpha: float = 0.95) -> None:
        self.context, self.alpha = context, alpha

    def step(self, a, s, p):
        c = (1 - self.alpha) * a.c + self.alpha * s.c
        return sigmoid(a.h + c @ p.P.mT), c


class TLSTM(Cell):
    """The time-aware LSTM (Baytas et al. 2017, doi:10.1145/3097983.3097997).

    The last input is the time since the last step. A negative time counts as 0.

    d = tanh(D c_prev + b_d),  k = c_prev - d + d / log(e + time),  i, f, o = sigmoid(...),  g = tanh(...),
    c = f k + i g,  h = o tanh(c), where D (units, units) and b_d are parameters, and x is the input without the time
    """

    inputs = {"x": FEATURES, "time": SCALAR}
    gates = {"i": UNITS, "f": UNITS, "g": UNITS, "o": UNITS}
    state = {"h": UNITS, "c": UNITS}
    parameters = {"D": Parameter(axes=("units", "units")), "b_d": Parameter()}

    def step(self, a, s, p):
        i, f, g, o = sigmoid(a.i), sigmoid(a.f), tanh(a.g), sigmoid(a.o)
        d = tanh(s.c @ p.D.mT + p.b_d)
        kept = s.c - d + d / log(math.e + relu(a.input.time))[:, None]
        c = f * kept + i * a.update(g)
        return o * tanh(c), c


class GRUD(Cell):
    """The GRU-D (Che et al. 2016, arXiv:1606.01865), for values that are missing at some steps.

    The input is (x, m, d): features, a mask that is 1 where a feature was observed, and the time since it was observed.

    e = exp(-max(0, w d + b_w)),  l = m x + (1 - m) l_prev,  u = m x + (1 - m) (e l_prev + (1 - e) mean),
    k = exp(-max(0, D d + b_d)) h_prev,  r, z = sigmoid(W u + V m + W_hh k + b_hh),
    n = tanh(W u + V m + W_hh (r k) + b_hh),  h = (1 - z) k + z n

    l contains the last observed values. W and V (3, units, features), D (units, features), w, b_w, b_d and mean are
    parameters. The paper computes `mean`, the mean of each feature in the training data, in advance.
    """

    inputs = {"x": FEATURES, "m": FEATURES, "d": FEATURES}
    gates = {"r": Gate(reads="h"), "z": Gate(reads="h"), "n": Gate(reads="h")}
    state = {"h": UNITS, "l": FEATURES}
    parameters = {
        "W": Parameter(axes=(3, "units", "features")),
        "V": Parameter(axes=(3, "units", "features")),
        "D": Parameter(axes=("units", "features")),
        "b_d": Parameter(),
        "w": Parameter(draw_matrix, axes=FEATURES),
        "b_w": Parameter(axes=FEATURES),
        "mean": Parameter(axes=FEATURES),
    }
    projected = no_projection

    def step(self, a, s, p):
        x, m, d = a.input.x, a.input.m, a.input.d
        e, k = exp(-relu(p.w * d + p.b_w)), exp(-relu(d @ p.D.mT + p.b_d)) * s.h
        u = m * x + (1 - m) * (e * s.l + (1 - e) * p.mean)
        from_r, from_z, from_n = (u @ p.W[gate].mT + m @ p.V[gate].mT for gate in range(3))
        r, z = sigmoid(from_r + a.hh(k).r), sigmoid(from_z + a.hh(k).z)
        n = tanh(from_n + a.hh(r * k).n)
        return (1 - z) * k + z * a.update(n), m * x + (1 - m) * s.l


class CfC(Cell):
    """The closed-form continuous-time network (Hasani et al. 2021, arXiv:2106.13898, equation 10).

    The last input is the time since the last step.

    b = 1.7159 tanh(0.666 (...)),  q = sigmoid(-time (F b + c_f)),
    h = q tanh(G b + c_g) + (1 - q) tanh(K b + c_k), where F, G and K are the blocks of the parameter
    H (3, units, backbone), and c_f, c_g and c_k those of c (3, units). x is the input without the time.

    The released code of the authors adds another head to the argument of the sigmoid.

    Args:
        backbone: the size of b, which the three heads read.
    """

    inputs = {"x": FEATURES, "time": SCALAR}
    gates = {"b": ("backbone",)}
    state = {"h": UNITS}
    parameters = {"H": Parameter(axes=(3, "units", "backbone")), "c": Parameter(0.0, axes=(3, "units"))}
    projected = no_projection

    def __init__(self, backbone: int = 128) -> None:
        self.backbone = backbone

    def step(self, a, s, p):
        b = 1.7159 * tanh(0.666 * a.b)
        f, g, k = (b @ p.H[head].mT + p.c[head] for head in range(3))
        q = sigmoid(-a.input.time[:, None] * f)
        return q * a.update(tanh(g)) + (1 - q) * tanh(k)


class LTC(Cell):
    """The liquid time-constant network (Hasani et al. 2020, arXiv:2006.04439, algorithm 1), with a fused solver.

    The last input is the time since the last step.

    d = time / unfolds, and `unfolds` times, beginning with h = h_prev:
    f = sigmoid(W_x x + W_h h),  h = (h + d f A) / (1 + d (1 / tau + f)), where tau = exp(log_tau) and A are parameters
    with one number per unit. x is the input without the time.

    The paper allows several activations in f. The package `ncps` of the authors has a sigmoid for each pair of units.

    Args:
        unfolds: the number of steps of the solver.
    """

    inputs = {"x": FEATURES, "time": SCALAR}
    gates = {"f": UNITS}
    state = {"h": UNITS}
    parameters = {"log_tau": Parameter(), "A": Parameter(lambda p: p.uniform_(-1, 1))}
    projected = no_projection

    def __init__(self, unfolds: int = 6) -> None:
        self.unfolds = unfolds

    def step(self, a, s, p):
        h, d = s.h, a.input.time[:, None] / self.unfolds
        for _ in range(self.unfolds):
            f = sigmoid(a.ih.f + a.hh(h).f)
            h = (h + d * f * p.A) / (1 + d * (exp(-p.log_tau) + f))
        return h
