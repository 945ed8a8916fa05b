"""State spaces: cells with a linear memory. Complex numbers are pairs of states, `re` and `im`.

In the equations, `...` is the pre-activation of the gate, W_ih x + b_ih + W_hh h_prev + b_hh, and W_x x stands for
W_ih x + b_ih alone. Each gate has its own rows of these matrices. The papers have no biases in linear terms; create the
layer with `bias=False` for this.
"""

import math
from functools import partial

import torch
from torch import cos, exp, expm1, sigmoid, sin, sqrt, tanh
from torch.nn.functional import logsigmoid

from glassgate.cell import Cell, no_projection
from glassgate.cell_axes import Parameter
from glassgate.cells.classic import ClassicCell

UNITS, MODES, ALL = ("units",), ("modes",), ("units", "modes")


def product(a, b):
    """Multiply two complex numbers, each a pair of real and imaginary part."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def polar(logarithm, angle):
    """Compute the complex number with this logarithm of its magnitude, and this angle."""
    return exp(logarithm) * cos(angle), exp(logarithm) * sin(angle)


def zero_order_hold(A, dt):
    """Compute exp(dt A) and (exp(dt A) - 1) / A of a complex number A."""
    x, y = dt * A[0], dt * A[1]
    change = expm1(x) * cos(y) - 2 * sin(y / 2) ** 2, exp(x) * sin(y)  # exp(dt A) - 1, without cancellation
    scale = 1 / (A[0] * A[0] + A[1] * A[1])
    return polar(x, y), product(change, (A[0] * scale, -A[1] * scale))


def draw_step_size(p):
    """Fill a tensor with logarithms of step sizes from 0.001 to 0.1, uniform on a logarithmic scale."""
    p.uniform_(math.log(0.001), math.log(0.1))


def draw_output(p):
    """Fill the real and imaginary parts of the output matrix with normal numbers, as in the code of S4D and S5."""
    p.normal_(std=0.5**0.5)


def draw_ring(p, smallest, largest, angle):
    """Fill nu, theta and gamma so that the magnitudes and angles of the modes are uniform on a ring."""
    squared = torch.empty_like(p[0]).uniform_(smallest**2, largest**2)
    angles = angle * (1 - torch.rand_like(p[0]))  # above zero, for the logarithm
    p.copy_(torch.stack([(-squared.log() / 2).log(), angles.log(), (1 - squared).log() / 2]))


def fill_linear(p):
    """Fill A with the eigenvalues -1 / 2 + i pi n of S4D-Lin, the first row as a logarithm."""
    p[0] = -math.log(2)
    p[1] = math.pi * torch.arange(p.shape[-1])


def fill_hippo(p):
    """Fill A with the eigenvalues of the normal part of the HiPPO matrix, the first row as a logarithm."""
    root = (2 * torch.arange(2 * p.shape[-1], dtype=torch.float64) + 1).sqrt()
    rotation = (root[:, None] * root / 2).triu(1)
    p[0] = -math.log(2)
    p[1] = torch.linalg.eigvalsh(1j * (rotation - rotation.T))[p.shape[-1] :]


def fill_legendre(p, theta, column):
    """Fill A, or B if `column`, of the Legendre memory with a window of theta steps, after the zero-order hold."""
    n = torch.arange(len(p), dtype=torch.float64)
    i, j = n[:, None], n[None, :]
    both = torch.zeros(len(p) + 1, len(p) + 1, dtype=torch.float64)
    both[:-1, :-1] = (2 * i + 1) / theta * torch.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    both[:-1, -1] = (2 * n + 1) * (-1.0) ** n / theta
    discrete = torch.linalg.matrix_exp(both)[:-1]
    p.copy_(discrete[:, -1] if column else discrete[:, :-1])


class RGLRU(ClassicCell):
    """The real-gated linear recurrent unit of Griffin (De et al. 2024, arXiv:2402.19427, equations 1 to 4).

    r, i = sigmoid(W_x x),  a = sigmoid(L)^(8 r),  h = a h_prev + sqrt(1 - a^2) i n, where n is W_x x, and L is a
    parameter with one number per unit

    The paper has x for n, which needs an input of the hidden size. It is the special case W_x = 1. sigmoid(L)^8 starts
    between 0.9 and 0.999. In the released code of the authors, sigmoid(L) starts in this range.
    """

    gates = ("r", "i", "n")
    parameters = {"L": Parameter(lambda p: p.uniform_(0.9, 0.999).pow_(1 / 8).logit_())}
    recurrent = False

    def step(self, a, s, p):
        r, i = sigmoid(a.r), sigmoid(a.i)
        log_a = 8 * r * logsigmoid(p.L)
        # The bound keeps the gradient of the root finite where r is 0.
        scale = sqrt(torch.clamp(-expm1(2 * log_a), min=1e-12))
        return exp(log_a) * s.h + scale * i * a.update(a.n)


class LRU(Cell):
    """The linear recurrent unit (Orvieto et al. 2023, arXiv:2303.06349, section 3): complex states on a ring.

    z = exp(-exp(nu) + i exp(theta)) z_prev + exp(gamma) B x,  h = Re(C z) + D x

    B x and D x are pre-activations W_x x: the gates `re` and `im` are B x, and `d` is D x. `ring` contains nu, theta
    and gamma, one number per mode. C (2, units, modes) contains the real and the imaginary part.

    Args:
        modes: the number of complex states.
        smallest, largest: the magnitudes of exp(-exp(nu)) at the start.
        angle: the largest angle exp(theta) at the start, in radians.
    """

    gates = {"re": MODES, "im": MODES, "d": UNITS}
    state = {"h": UNITS, "re": MODES, "im": MODES}
    recurrent = False
    projected = no_projection

    def __init__(self, modes: int = 64, smallest: float = 0.9, largest: float = 0.999, angle: float = 2 * math.pi):
        self.modes, self.smallest, self.largest, self.angle = modes, smallest, largest, angle
        ring = partial(draw_ring, smallest=smallest, largest=largest, angle=angle)
        self.parameters = {
            "ring": Parameter(ring, axes=(3, "modes")),
            "C": Parameter(partial(torch.nn.init.normal_, std=modes**-0.5), axes=(2, *ALL)),
        }

    def step(self, a, s, p):
        nu, theta, gamma = p.ring[0], p.ring[1], p.ring[2]
        kept = product(polar(-exp(nu), exp(theta)), (s.re, s.im))
        re, im = kept[0] + exp(gamma) * a.re, kept[1] + exp(gamma) * a.im
        return re @ p.C[0].mT - im @ p.C[1].mT + a.d, re, im


class S4D(Cell):
    """The diagonal state space S4D (Gu et al. 2022, arXiv:2206.11893): each unit has its own complex states.

    z = exp(dt A) z_prev + (exp(dt A) - 1) / A u,  h = 2 Re(sum of C z over the modes) + D u, where u is W_x x

    A = -exp(A[0]) + i A[1] and C (2, units, modes) have a number per unit and mode, log dt and D one per unit. A starts
    at -1 / 2 + i pi n (S4D-Lin). The paper has x for u, which needs an input of the hidden size.

    Args:
        modes: the number of complex states per unit, N / 2 in the paper.
    """

    gates = {"u": UNITS}
    state = {"h": UNITS, "re": ALL, "im": ALL}
    parameters = {
        "A": Parameter(fill_linear, axes=(2, *ALL)),
        "C": Parameter(draw_output, axes=(2, *ALL)),
        "log_dt": Parameter(draw_step_size),
        "D": Parameter(lambda p: p.normal_()),
    }
    recurrent = False
    projected = no_projection

    def __init__(self, modes: int = 32) -> None:
        self.modes = modes

    def step(self, a, s, p):
        kept, drive = zero_order_hold((-exp(p.A[0]), p.A[1]), exp(p.log_dt)[:, None])
        u, z = a.update(a.u)[..., None], product(kept, (s.re, s.im))
        re, im = z[0] + drive[0] * u, z[1] + drive[1] * u
        return 2 * (p.C[0] * re - p.C[1] * im).sum(-1) + p.D * a.u, re, im


class S5(Cell):
    """The diagonal state space S5 (Smith, Warrington and Linderman 2022, arXiv:2208.04933): all units share the states.

    z = exp(dt A) z_prev + (exp(dt A) - 1) / A (B x),  h = 2 Re(C z) + D x

    B x and D x are pre-activations W_x x: the gates `re` and `im` are B x, and `d` is D x. A = -exp(A[0]) + i A[1] and
    log dt have a number per mode. A starts at the eigenvalues of the normal part of the HiPPO matrix. The paper has
    numbers for the real parts, which may become positive in training.

    Args:
        modes: the number of complex states, P / 2 in the paper.
    """

    gates = {"re": MODES, "im": MODES, "d": UNITS}
    state = {"h": UNITS, "re": MODES, "im": MODES}
    parameters = {
        "A": Parameter(fill_hippo, axes=(2, "modes")),
        "C": Parameter(draw_output, axes=(2, *ALL)),
        "log_dt": Parameter(draw_step_size, axes=MODES),
    }
    recurrent = False
    projected = no_projection

    def __init__(self, modes: int = 32) -> None:
        self.modes = modes

    def step(self, a, s, p):
        kept, drive = zero_order_hold((-exp(p.A[0]), p.A[1]), exp(p.log_dt))
        z, u = product(kept, (s.re, s.im)), product(drive, (a.re, a.im))
        re, im = z[0] + u[0], z[1] + u[1]
        return 2 * (re @ p.C[0].mT - im @ p.C[1].mT) + a.d, re, im


class LMU(Cell):
    """The Legendre memory unit (Voelker, Kajic and Eliasmith 2019, NeurIPS 32): a window of an input as polynomials.

    u = ... + e m_prev,  m = A m_prev + B u,  h = tanh(... + W m), where e is a vector, and W a matrix

    A and B contain the differential equation of the paper after a zero-order hold of one step. The paper keeps them
    constant: `layer.A_l0.requires_grad_(False)` and `layer.B_l0.requires_grad_(False)`.

    Args:
        order: the number of polynomials.
        theta: the length of the window in steps.
    """

    gates = {"h": UNITS, "u": ()}
    state = {"h": UNITS, "m": ("order",)}
    projected = no_projection

    def __init__(self, order: int = 32, theta: float = 100.0) -> None:
        self.order, self.theta = order, theta
        self.parameters = {
            "A": Parameter(partial(fill_legendre, theta=theta, column=False), axes=("order", "order")),
            "B": Parameter(partial(fill_legendre, theta=theta, column=True), axes=("order",)),
            "e": Parameter(axes=("order",)),
            "W": Parameter(axes=("units", "order")),
        }

    def step(self, a, s, p):
        u = a.u + (p.e * s.m).sum(-1)
        m = s.m @ p.A.mT + a.update(u)[:, None] * p.B
        return tanh(a.h + m @ p.W.mT), m
