"""The shapes of the tests, and a hypothesis strategy that draws drop-in layers, each with the input of one call."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tests.compare import Results, measure, noise


class Shape(NamedTuple):
    """Sizes of a layer and its input. H_out is 0 without a projection. Without lengths, all sequences have L steps."""

    L: int
    N: int
    H_in: int
    H_cell: int
    H_out: int = 0
    lengths: tuple[int, ...] | None = None


SHAPES = {
    "ones": Shape(1, 1, 1, 1),
    "odd": Shape(33, 5, 63, 65),
    "power of two": Shape(16, 8, 32, 64),
    "one step": Shape(1, 3, 4, 5),
    "long": Shape(70, 2, 3, 6),
    "narrow input": Shape(6, 3, 2, 19),
    "projection": Shape(7, 3, 4, 9, 5),
    "ragged": Shape(9, 6, 5, 7, 0, (3, 0, 9, 1, 9, 0)),
    "ragged projection": Shape(8, 4, 3, 17, 6, (0, 2, 8, 5)),
    "nothing but zeros": Shape(3, 2, 4, 5, 0, (0, 0)),
}

STOCK = {"RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}
STATES = {"RNN": ("h",), "GRU": ("h",), "LSTM": ("h", "c")}


@dataclass(frozen=True)
class Construction:
    """A layer that `torch.nn` and Glassgate have, and the input of one call."""

    kind: str
    options: dict[str, Any]
    L: int
    N: int
    form: str
    """The form of the input: "padded", "unbatched", "sorted" (packed, longest first) or "unsorted" (packed)."""
    lengths: tuple[int, ...]
    """The lengths of a packed input."""
    hx: bool
    seed: int = field(default=0)

    def stock(self) -> nn.Module:
        """Return the layer of `torch.nn` in float64, with weights and biases drawn from the seed."""
        layer = STOCK[self.kind](**self.options, dtype=torch.float64)
        with torch.no_grad():
            for k, weight in enumerate(layer.parameters()):
                weight.copy_(noise(1000 + self.seed + k, *weight.shape) / self.options["hidden_size"] ** 0.5)
        return layer

    def call(self, layer: nn.Module) -> Results:
        """Return output, final states and gradients of a call. Inputs are drawn from the seed, in the layer's dtype."""
        like = next(layer.parameters())
        leaves = {"input": self._noise(1, *self._input_shape()), **self._initial()}
        leaves = {name: value.to(like).requires_grad_() for name, value in leaves.items()}
        states = [leaves[f"{s}_0"] for s in STATES[self.kind] if self.hx]
        hx = None if not self.hx else states[0] if len(states) == 1 else tuple(states)
        output, final = layer(self._packed(leaves["input"]), hx)
        output = output.data if isinstance(output, PackedSequence) else output
        final = final if isinstance(final, tuple) else (final,)
        outputs = {"output": output} | {f"{s}_n": v for s, v in zip(STATES[self.kind], final, strict=True)}
        return measure(outputs, leaves | dict(layer.named_parameters()), self.seed)

    def _noise(self, k: int, *shape: int) -> Tensor:
        return noise(10 * self.seed + k, *shape)

    def _input_shape(self) -> tuple[int, ...]:
        H_in = self.options["input_size"]
        if self.form == "unbatched":
            return (self.L, H_in)
        return (self.N, self.L, H_in) if self.options["batch_first"] else (self.L, self.N, H_in)

    def _initial(self) -> Results:
        if not self.hx:
            return {}
        rows = () if self.form == "unbatched" else (self.N,)
        lead = self.options["num_layers"] * (2 if self.options["bidirectional"] else 1)
        cell, out = self.options["hidden_size"], self.options.get("proj_size", 0) or self.options["hidden_size"]
        widths = dict(zip(STATES[self.kind], (out, cell), strict=False))
        return {f"{s}_0": self._noise(2 + k, lead, *rows, w) for k, (s, w) in enumerate(widths.items())}

    def _packed(self, input: Tensor) -> Tensor | PackedSequence:
        if self.form in ("padded", "unbatched"):
            return input
        lengths = torch.tensor(self.lengths)
        return pack_padded_sequence(input, lengths, self.options["batch_first"], self.form == "sorted")


@st.composite
def constructions(draw: st.DrawFn) -> Construction:
    """Draw a small layer that `torch.nn` can build, and the input of a call."""
    kind = draw(st.sampled_from(sorted(STOCK)))
    L, N, H = (draw(st.integers(1, top)) for top in (7, 5, 9))
    options: dict[str, Any] = {
        "input_size": draw(st.integers(1, 6)),
        "hidden_size": H,
        "num_layers": draw(st.integers(1, 3)),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
    }
    if kind == "RNN":
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    if kind == "LSTM" and H > 1:
        options["proj_size"] = draw(st.integers(0, H - 1))
    form = draw(st.sampled_from(["padded", "unbatched", "sorted", "unsorted"]))
    lengths = draw(st.lists(st.integers(1, L), min_size=N, max_size=N))
    if form == "sorted":
        lengths.sort(reverse=True)
    return Construction(kind, options, L, N, form, tuple(lengths), draw(st.booleans()), draw(st.integers(0, 10**6)))
