"""An LSTM by jax.lax.scan under jit. The matrix product with the input precedes the loop."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed.workload import Workload, draw, weight


def lstm(leaves: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Compute the output and the final states of one layer."""
    bias = leaves["bias_ih_l0"] + leaves["bias_hh_l0"]
    projected = leaves["input"] @ leaves["weight_ih_l0"].T + bias
    recurrent = leaves["weight_hh_l0"].T

    def step(state: tuple[jax.Array, jax.Array], ih: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        h, c = state
        i, f, g, o = jnp.split(ih + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, c), output = jax.lax.scan(step, (leaves["h_0"][0], leaves["c_0"][0]), projected)
    return {"output": output, "h_n": h[None], "c_n": c[None]}


@jax.jit
def train(leaves: dict[str, jax.Array], upstream: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Compute the outputs and all gradients."""
    outputs, backward = jax.vjp(lstm, leaves)
    (gradients,) = backward(upstream)
    return outputs | {f"grad {name}": g for name, g in gradients.items()}


infer = jax.jit(lstm)


class Scan:
    """A workload with its weights, inputs and states on jax's device."""

    def __init__(self, workload: Workload) -> None:
        H, state, self.training = workload.H, (1, workload.N, workload.H), workload.do == "training"
        leaves = {"input": draw("input", workload.L, workload.N, workload.inputs), "h_0": draw("h_0", *state)}
        leaves["c_0"] = draw("c_0", *state)
        shapes: dict[str, tuple[int, ...]] = {"weight_ih_l0": (4 * H, workload.inputs), "weight_hh_l0": (4 * H, H)}
        shapes |= {"bias_ih_l0": (4 * H,), "bias_hh_l0": (4 * H,)}
        leaves |= {name: weight(name, H, *shape) for name, shape in shapes.items()}
        upstream = {"output": draw("d output", workload.L, workload.N, H)}
        upstream |= {name: draw(f"d {name}", *state) for name in ("h_n", "c_n")}
        self.leaves, self.upstream = jax.device_put(leaves), jax.device_put(upstream)

    def run(self) -> Any:
        """Compute one training step or forward pass."""
        return jax.block_until_ready(train(self.leaves, self.upstream) if self.training else infer(self.leaves))

    def results(self) -> dict[str, np.ndarray]:
        """Return all results of `run` by name."""
        return {name: np.array(value) for name, value in self.run().items()}


def prepare(workload: Workload) -> Scan:
    """Return the workload for jax."""
    return Scan(workload)
