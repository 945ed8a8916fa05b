"""Classic cells with one number per unit: gated networks and simplifications of the GRU and the LSTM.

In the equations, `...` is the pre-activation of the gate, W_ih x + b_ih + W_hh h_prev + b_hh. W_x x is W_ih x + b_ih
alone, and W_h h is W_hh h + b_hh alone. Each gate has its own rows of these matrices. If a gate reads
only x or only h, its rows in the other matrix have no effect.

`structured.py` contains cells with other matrices, and models of dynamical systems.
"""

from torch import relu, sigmoid, tanh

from glassgate.cell import Cell, Parameter, no_projection


class ClassicCell(Cell):
    """The base class of these cells. Elementwise operations read the output h, so h cannot be projected."""

    projected = no_projection


class ATR(ClassicCell):
    """The addition-subtraction twin-gated recurrent network (Zhang et al. 2018, arXiv:1810.12546).

    p = W_x x,  q = W_h h_prev,  i = sigmoid(p + q),  f = sigmoid(p - q),  h = i p + f h_prev
    """

    gates = ("p",)

    def step(self, a, s):
        p, q = a.ih.p, a.hh.p
        i, f = sigmoid(p + q), sigmoid(p - q)
        return i * a.update(p) + f * s.h


class BRC(ClassicCell):
    """The bistable recurrent cell (Vecoven, Ernst and Drion 2020, arXiv:2006.05252): each unit reads only itself.

    b = 1 + tanh(W_x x + w_b h_prev),  c = sigmoid(W_x x + w_c h_prev),
    h = c h_prev + (1 - c) tanh(W_x x + b h_prev), with one number w_b and w_c per unit. b is a in the paper.
    """

    gates = ("b", "c", "n")
    parameters = {"w_b": Parameter(1.0), "w_c": Parameter(1.0)}
    recurrent = False

    def step(self, a, s, p):
        b = 1 + tanh(a.b + p.w_b * s.h)
        c = sigmoid(a.c + p.w_c * s.h)
        return c * s.h + (1 - c) * a.update(tanh(a.n + b * s.h))


class NBRC(ClassicCell):
    """The neuromodulated bistable recurrent cell (Vecoven, Ernst and Drion 2020, arXiv:2006.05252).

    b = 1 + tanh(...),  c = sigmoid(...),  h = c h_prev + (1 - c) tanh(W_x x + b h_prev). b is a in the paper.

    The gates of RecurrentLayers.jl ignore h_prev. Here they read it, as in the paper.
    """

    gates = ("b", "c", "n")

    def step(self, a, s):
        b, c = 1 + tanh(a.b), sigmoid(a.c)
        return c * s.h + (1 - c) * a.update(tanh(a.ih.n + b * s.h))


class CFN(ClassicCell):
    """The chaos-free network (Laurent and von Brecht 2016, arXiv:1612.06212).

    f = sigmoid(...),  i = sigmoid(...),  h = f tanh(h_prev) + i tanh(W_x x). f is theta and i is eta in the paper.
    """

    gates = ("f", "i", "n")

    def step(self, a, s):
        f, i = sigmoid(a.f), sigmoid(a.i)
        return f * tanh(s.h) + i * a.update(tanh(a.ih.n))


class LiGRU(ClassicCell):
    """The light GRU (Ravanelli et al. 2018, arXiv:1803.10225), without batch normalisation of W_x x.

    z = sigmoid(...),  n = relu(...),  h = z h_prev + (1 - z) n

    RecurrentLayers.jl computes tanh instead of relu. Here n is as in the paper.
    """

    gates = ("z", "n")

    def step(self, a, s):
        z, n = sigmoid(a.z), relu(a.n)
        return z * s.h + (1 - z) * a.update(n)


class LightRU(ClassicCell):
    """The light recurrent unit (Ye et al. 2024, Electronics 13(16), 3204): one gate, and a candidate without h.

    f = sigmoid(...),  n = tanh(W_x x),  h = (1 - f) h_prev + f n
    """

    gates = ("n", "f")

    def step(self, a, s):
        n, f = tanh(a.ih.n), sigmoid(a.f)
        return (1 - f) * s.h + f * a.update(n)


class LSTM1997(ClassicCell):
    """The first LSTM (Hochreiter and Schmidhuber 1997), without forget gate.

    i = sigmoid(...),  g = 4 sigmoid(...) - 2,  o = sigmoid(...),  c = c_prev + i g,  h = o (2 sigmoid(c) - 1)

    Later implementations replace the two centred sigmoids of the paper by tanh.
    """

    gates = ("i", "g", "o")
    state = ("h", "c")

    def step(self, a, s):
        i, g, o = sigmoid(a.i), 4 * sigmoid(a.g) - 2, sigmoid(a.o)
        c = s.c + i * a.update(g)
        return o * (2 * sigmoid(c) - 1), c


class MinimalRNN(ClassicCell):
    """The MinimalRNN (Chen 2017, arXiv:1711.06788).

    z = tanh(W_x x),  u = sigmoid(W_u h_prev + W_v z + b),  h = u h_prev + (1 - u) z

    W_u and W_v are the rows of u and v in W_hh. RecurrentLayers.jl reads z of the previous step in u.
    """

    gates = ("z", "u", "v")

    def step(self, a, s):
        z = tanh(a.ih.z)
        u = sigmoid(a.hh.u + a.hh(z).v)
        return u * s.h + (1 - u) * a.update(z)


class MUT1(ClassicCell):
    """The first mutation (Jozefowicz, Zaremba and Sutskever 2015, ICML, PMLR 37).

    z = sigmoid(W_x x),  r = sigmoid(...),  n = tanh(W_h (r h_prev) + tanh(W_x x)),  h = z n + (1 - z) h_prev

    The paper has tanh(x) in n, which needs an input of the hidden size. It is the special case W_x = 1.
    """

    gates = ("z", "r", "n")

    def step(self, a, s):
        z, r = sigmoid(a.ih.z), sigmoid(a.r)
        n = tanh(a.hh(r * s.h).n + tanh(a.ih.n))
        return z * a.update(n) + (1 - z) * s.h


class MUT2(ClassicCell):
    """The second mutation (Jozefowicz, Zaremba and Sutskever 2015, ICML, PMLR 37).

    z = sigmoid(...),  r = sigmoid(...),  n = tanh(W_x x + W_h (r h_prev)),  h = z n + (1 - z) h_prev

    The paper has x in r in place of W_x x, which needs an input of the hidden size. It is the special case W_x = 1.
    """

    gates = ("z", "r", "n")

    def step(self, a, s):
        z, r = sigmoid(a.z), sigmoid(a.r)
        n = tanh(a.ih.n + a.hh(r * s.h).n)
        return z * a.update(n) + (1 - z) * s.h


class MUT3(ClassicCell):
    """The third mutation (Jozefowicz, Zaremba and Sutskever 2015, ICML, PMLR 37).

    z = sigmoid(W_x x + W_h tanh(h_prev)),  r = sigmoid(...),  n = tanh(W_x x + W_h (r h_prev)),
    h = z n + (1 - z) h_prev
    """

    gates = ("z", "r", "n")

    def step(self, a, s):
        z, r = sigmoid(a.ih.z + a.hh(tanh(s.h)).z), sigmoid(a.r)
        n = tanh(a.ih.n + a.hh(r * s.h).n)
        return z * a.update(n) + (1 - z) * s.h


class NAS(ClassicCell):
    """The cell of neural architecture search (Zoph and Le 2016, arXiv:1611.01578), as released by its authors.

    o1, o3, o6, o8 = sigmoid(...),  o2 = relu(...),  o4 = relu((W_x x) (W_h h_prev)),  o5, o7 = tanh(...),
    k = tanh(tanh(o1 o2) + c_prev),  c = k tanh(o3 + o4),
    h = tanh(c tanh(tanh(o5 o6) + sigmoid(o7 + o8)))

    RecurrentLayers.jl documents the product in o4 and computes a sum.
    """

    gates = ("o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8")
    state = ("h", "c")

    def step(self, a, s):
        k = tanh(tanh(sigmoid(a.o1) * relu(a.o2)) + s.c)
        c = k * tanh(sigmoid(a.o3) + relu(a.ih.o4 * a.hh.o4))
        m = tanh(tanh(tanh(a.o5) * sigmoid(a.o6)) + sigmoid(tanh(a.o7) + sigmoid(a.o8)))
        return tanh(c * m), c


class QRNN(ClassicCell):
    """The fo-pooling of the quasi-recurrent network (Bradbury et al. 2016, arXiv:1611.01576). No gate reads h.

    n = tanh(W_x x),  f, o = sigmoid(W_x x),  c = f c_prev + (1 - f) n,  h = o c. n is z in the paper.

    The paper computes the gates from the last k inputs: W_x x after a convolution over time.
    """

    gates = ("n", "f", "o")
    state = ("h", "c")
    recurrent = False

    def step(self, a, s):
        n, f, o = tanh(a.n), sigmoid(a.f), sigmoid(a.o)
        c = f * s.c + (1 - f) * a.update(n)
        return o * c, c


class RAN(ClassicCell):
    """The recurrent additive network (Lee, Levy and Zettlemoyer 2017, arXiv:1705.07393).

    i = sigmoid(...),  f = sigmoid(...),  c = i (W_x x) + f c_prev,  h = tanh(c)
    """

    gates = ("i", "f", "n")
    state = ("h", "c")

    def step(self, a, s):
        i, f = sigmoid(a.i), sigmoid(a.f)
        c = i * a.update(a.ih.n) + f * s.c
        return tanh(c), c


class SGRN(ClassicCell):
    """The simple gated recurrent network (Zu et al. 2020, doi:10.1049/gtd2.12056): gate and candidate share weights.

    f = sigmoid(...),  h = tanh((1 - f) (W_x x) + f h_prev)
    """

    gates = ("n",)

    def step(self, a, s):
        f = sigmoid(a.n)
        return tanh((1 - f) * a.update(a.ih.n) + f * s.h)


class SRU(ClassicCell):
    """The simple recurrent unit (Lei et al. 2017, arXiv:1709.02755, version 5). No gate reads h.

    f = sigmoid(W_x x + v_f c_prev),  r = sigmoid(W_x x + v_r c_prev),  c = f c_prev + (1 - f) n,
    h = r c + (1 - r) k, where n and k are W_x x, and v_f and v_r are parameters with one number per unit

    If the input has the hidden size, the paper has x for k. It is the special case W_x = 1.
    """

    gates = ("n", "f", "r", "k")
    state = ("h", "c")
    parameters = {"v_f": Parameter(), "v_r": Parameter()}
    recurrent = False

    def step(self, a, s, p):
        f, r = sigmoid(a.f + p.v_f * s.c), sigmoid(a.r + p.v_r * s.c)
        c = f * s.c + (1 - f) * a.update(a.n)
        return r * c + (1 - r) * a.k, c


class STAR(ClassicCell):
    """The stackable recurrent cell (Turkoglu et al. 2019, arXiv:1911.11033).

    k = sigmoid(...),  n = tanh(W_x x),  h = tanh((1 - k) h_prev + k n). n is z in the paper.
    """

    gates = ("n", "k")

    def step(self, a, s):
        n, k = tanh(a.ih.n), sigmoid(a.k)
        return tanh((1 - k) * s.h + k * a.update(n))


class UGRNN(ClassicCell):
    """The update-gate network (Collins, Sohl-Dickstein and Sussillo 2016, arXiv:1611.09913).

    g = sigmoid(...),  n = tanh(...),  h = g h_prev + (1 - g) n. n is c in the paper.
    """

    gates = ("g", "n")

    def step(self, a, s):
        g, n = sigmoid(a.g), tanh(a.n)
        return g * s.h + (1 - g) * a.update(n)
