"""A continuous-time recurrent network, a model of neural circuits (Song, Yang and Wang 2016)."""

from glassgate.cell import Cell, Noise
from glassgate.cells.activations import activation as activation_of


class CTRNN(Cell):
    """Leaky units with noise in their currents (Song, Yang and Wang 2016, doi:10.1371/journal.pcbi.1004792, eq. 6).

    x = (1 - leak) x_prev + leak (W_ih u + b_ih + W_hh r_prev + b_hh) + sqrt(2 leak) sigma xi,  r = activation(x)

    Here leak = dt / tau, u is the input, and xi is standard normal noise, which is drawn at each step in training. The
    output r contains firing rates, and x contains currents.

    Args:
        activation: the name of an elementwise function of `torch.nn.functional`.
        tau: the time constant, in the unit of dt.
        dt: the duration of a step, at most tau.
        sigma: the standard deviation of the noise; 0 for none.
    """

    gates = ("x",)
    state = ("r", "x")

    def __init__(self, activation: str = "relu", tau: float = 100.0, dt: float = 20.0, sigma: float = 0.0) -> None:
        self.activation, self.tau, self.dt, self.sigma = activation, tau, dt, sigma
        self._activation = activation_of("CTRNN", activation)
        if not 0 < dt <= tau:
            raise ValueError(f"CTRNN: dt must be above 0 and at most tau = {tau}, got {dt}")
        if not sigma >= 0:
            raise ValueError(f"CTRNN: sigma must be 0 or more, got {sigma}")
        self.leak = dt / tau
        self.noise = {"xi": Noise(deviation=(2 * self.leak) ** 0.5 * sigma)} if sigma else {}

    def step(self, a, s):
        x = (1 - self.leak) * s.x + self.leak * a.update(a.x)
        if self.sigma:
            x = x + a.noise.xi
        return self._activation(x), x
