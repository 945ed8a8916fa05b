"""The stages of a network in C: linear layers, embeddings, activations, and recurrent layers by level.

A stage maps a vector to a vector at each step. A chain is a sequence of stages; see `c_chain.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from glassgate.conversion import description
from glassgate.export.c_dialect import lanes_dialect
from glassgate.export.c_step import StepFunction
from glassgate.export.errors import ExportError
from glassgate.export.network import Level, levels_of
from glassgate.export.places import PackedWeights
from glassgate.layers.stack import Recurrent

_COST = {32: 1.7, 16: 1.0, 8: 0.65, 4: 0.5}
"""The approximate time to compute one block of units, by the size of the block, relative to a block of 16."""
_MAX_SUMS = 96
"""The maximum number of sums (units times gates) that a block computes at once: 12 registers of 8 numbers."""
_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "maximum_lanes(v, broadcast(0))",
    nn.Tanh: "tanh_lanes(v)",
    nn.Sigmoid: "sigmoid_lanes(v)",
}
_NO_OPS = (nn.Identity, nn.Dropout)
"""Modules without effect in eval mode."""


@dataclass
class Array:
    """A named array of constants that the functions read."""

    name: str
    values: np.ndarray


@dataclass
class Stage:
    """A part of the network.

    Attributes:
        name: the name of the stage, unique in the network.
        input: the number of inputs per step.
        output: the number of outputs per step.
        text: the C functions of the stage.
        arrays: the constants that the functions read.
        states: the size of each state array, by name.
        initial: the name of the array of initial values, by state name. States without such an array start from zero.
    """

    name: str
    input: int
    output: int
    text: str = ""
    arrays: list[Array] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    initial: dict[str, str] = field(default_factory=dict)

    bidirectional = False

    def step(self, x: str, y: str) -> Iterator[str]:
        """Lines that compute one step. They read the inputs at the C expression `x` and write the outputs at `y`."""
        yield f"{self.name}({self.name}_W, {x}, {y});"


class LevelStage(Stage):
    """One level of a recurrent layer, with one or two directions."""

    def __init__(self, level: Level, block: int, input: int, name: str) -> None:
        self.level = level
        self.directions = [StepFunction(spec, block, f"{name}{spec.label}") for spec in level.directions]
        super().__init__(level.directions[0].label.partition(".")[0], input, sum(level.structure.widths))
        self.bidirectional = len(self.directions) > 1
        self.text = "\n\n".join(direction.text for direction in self.directions)
        self.fields: dict[StepFunction, dict[str, str]] = {}
        """The field of each state in the struct of all states, by direction and state."""
        for direction in self.directions:
            names = direction.lanes.names()
            self.arrays.append(Array(names.new(f"{direction.name}_W"), direction.packed.flat))
            self.fields[direction] = {state: names.new(f"{direction.name}_{state}") for state in direction.state_sizes}
            for state, name in self.fields[direction].items():
                size, initial = direction.state_sizes[state], direction.spec.initial[state].numpy()
                self.states[name] = size
                if initial.any():
                    array = Array(names.new(f"{name}_0"), np.pad(initial, (0, size - len(initial))))
                    self.arrays.append(array)
                    self.initial[name] = array.name

    def _call(self, direction: StepFunction, x: str) -> str:
        states = "".join(f", s->{field}" for field in self.fields[direction].values())
        return f"{direction.name}({direction.name}_W, {x}{states});"

    def step(self, x: str, y: str) -> Iterator[str]:
        """Lines that compute one step of a level with one direction."""
        (direction,) = self.directions
        yield self._call(direction, x)
        yield from self._output(direction, x, y, 0)

    def _output(self, direction: StepFunction, x: str, y: str, k: int) -> Iterator[str]:
        """Lines that copy or add the new output of direction `k` to the outputs at `y`."""
        spec, level = direction.spec, self.level.structure
        h = f"s->{next(iter(self.fields[direction].values()))}"
        is_summed = len(self.directions) > 1 and level.merge in ("sum", "mean")
        offset = 0 if is_summed else sum(d.spec.output_size for d in self.directions[:k])
        place = f"{y} + {offset}" if offset else y
        half = (" * 0.5" if direction.double else " * 0.5f") if level.merge == "mean" and is_summed else ""
        if is_summed and k > 0:
            yield f"for (int j = 0; j < {spec.output_size}; j++) ({place})[j] = (({place})[j] + {h}[j]){half};"
        else:
            yield f"memcpy({place}, {h}, {spec.output_size} * sizeof(real));"
        last = k == len(self.directions) - 1
        residual = level.residual[k % len(level.residual)]
        if residual and (last or level.merge == "none"):
            count = spec.output_size if level.merge == "none" else self.output
            start = self._input_offset(k)
            source = f"({x} + {start})" if start else f"({x})"
            target = f"({place})" if level.merge == "none" else f"({y})"
            yield f"for (int j = 0; j < {count}; j++) {target}[j] += {source}[j];"

    def _input_offset(self, k: int) -> int:
        """The position of the input of direction `k` among the inputs of the level, which are separate for "none"."""
        return self.input - self.directions[k].spec.input_size if k else 0

    def run(self, x: str, y: str) -> Iterator[str]:
        """Lines that compute all steps of the forward direction, then all steps of the reverse direction."""
        for k, direction in enumerate(self.directions):
            source = f"{x} + t * {self.input}"
            if start := self._input_offset(k):
                source += f" + {start}"
            if direction.spec.reverse:
                yield f"reset_{direction.name}(s);"
                yield "for (size_t t = steps; t-- > 0;) {"
            else:
                yield "for (size_t t = 0; t < steps; t++) {"
            yield f"    {self._call(direction, source)}"
            for line in self._output(direction, f"{x} + t * {self.input}", f"{y} + t * {self.output}", k):
                yield f"    {line}"
            yield "}"


class DenseStage(Stage):
    """`nn.Linear`."""

    def __init__(self, module: nn.Linear, block: int, name: str) -> None:
        super().__init__(name, module.in_features, module.out_features)
        weight = module.weight.detach().cpu().numpy()
        packed = PackedWeights(block)
        rows = [] if module.bias is None else [module.bias.detach().cpu().numpy()]
        rows += list(weight.T)
        packed.add(np.stack([packed.blocks_of(row) for row in rows], 1))
        self.arrays.append(Array(f"{name}_W", packed.flat))
        biased = module.bias is not None
        start = "load(w + at % BLOCK)" if biased else "broadcast(0)"
        skip = " + BLOCK" if biased else ""
        blocks = -(-self.output // block) * block
        self.text = f"""\
/* {name}: W x{" + bias" if biased else ""}, {self.input} -> {self.output}. */
static void {name}(const real *W, const real *x, real *y) {{
    ALIGNED real all_y[{blocks}];
    for (int at = 0; at < {blocks}; at += LANES) {{
        const real *w = W + at / BLOCK * {len(rows)} * BLOCK;
        lanes v = {start};
        w += at % BLOCK{skip};
        for (int k = 0; k < {self.input}; k++) v += x[k] * load(w + k * BLOCK);
        store(all_y + at, v);
    }}
    memcpy(y, all_y, {self.output} * sizeof(real));
}}"""


class EmbeddingStage(Stage):
    """`nn.Embedding`: the input is a token ID."""

    def __init__(self, module: nn.Embedding, name: str) -> None:
        super().__init__(name, 1, module.embedding_dim)
        self.arrays.append(Array(f"{name}_W", module.weight.detach().cpu().numpy().reshape(-1)))
        self.text = f"""\
/* {name}: the row of a token; a number outside of the table counts as 0. */
static void {name}(const real *W, const real *x, real *y) {{
    const long token = x[0] >= 0 && x[0] < {module.num_embeddings} ? (long)x[0] : 0;
    memcpy(y, W + token * {self.output}, {self.output} * sizeof(real));
}}"""


class ActivationStage(Stage):
    """An elementwise function."""

    def __init__(self, module: nn.Module, block: int, width: int, name: str) -> None:
        super().__init__(name, width, width)
        blocks = -(-width // block) * block
        self.text = f"""\
/* {name}: {type(module).__name__}. */
static void {name}(const real *x, real *y) {{
    ALIGNED real all_x[{blocks}] = {{0}};
    memcpy(all_x, x, {width} * sizeof(real));
    for (int u = 0; u < {blocks}; u += LANES) {{
        const lanes v = load(all_x + u);
        store(all_x + u, {_ACTIVATIONS[type(module)]});
    }}
    memcpy(y, all_x, {width} * sizeof(real));
}}"""

    def step(self, x: str, y: str) -> Iterator[str]:
        """Lines that compute one step."""
        yield f"{self.name}({x}, {y});"


def flatten(module: nn.Module) -> list[nn.Module]:
    """The modules of nested `nn.Sequential`s in order, except those without effect in eval mode."""
    if isinstance(module, nn.Sequential):
        return [part for child in module for part in flatten(child)]
    return [] if isinstance(module, _NO_OPS) else [module]


def to_chains(module: nn.Module) -> tuple[dict[str, list[Stage]], int, bool]:
    """Convert a module to stages.

    Args:
        module: a module, or an `nn.ModuleDict` of modules that become one chain each.

    Returns:
        the stages of each chain by its key in the `nn.ModuleDict` ("" without a ModuleDict), the number of units in a
        block, and whether numbers are double.

    Raises:
        ExportError: a part has no C equivalent, or the sizes of two parts do not match.
    """
    chains = {
        key: flatten(each) for key, each in (module.items() if isinstance(module, nn.ModuleDict) else [("", module)])
    }
    if not chains or not all(chains.values()):
        raise ExportError("to_c: expected a layer, got a module without one")
    parts = [part for chain in chains.values() for part in chain]
    dtypes = {parameter.dtype for part in parts for parameter in part.parameters()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        given = ", ".join(sorted(map(str, dtypes))) or "none"
        raise ExportError(
            f"to_c: parameters must be all float32 or all float64, got {given}; call module.float() first"
        )
    double = dtypes == {torch.float64}
    levels = {part: levels_of(part, "to_c") for part in parts if isinstance(part, Recurrent)}
    block = max(_block_size([each for chain in levels.values() for each in chain], parts) // (2 if double else 1), 1)
    names = lanes_dialect(double).names()
    # No identifier begins with a digit.
    prefixes = {key: names.new(f"net{key}" if key[0].isdigit() else key) + "_" if key else "" for key in chains}
    return {key: _stages(chain, levels, block, prefixes[key]) for key, chain in chains.items()}, block, double


def _stages(
    parts: Sequence[nn.Module], levels: Mapping[Recurrent, Sequence[Level]], block: int, prefix: str
) -> list[Stage]:
    """The stages of consecutive modules. The names of their functions start with `prefix`."""
    stages: list[Stage] = []
    for part in parts:
        width = stages[-1].output if stages else None
        if isinstance(part, Recurrent):
            has_several_layers = sum(isinstance(each, Recurrent) for each in parts) > 1
            name = f"{prefix}part{parts.index(part)}_" if has_several_layers else prefix
            new: list[Stage] = []
            for level in levels[part]:
                new.append(LevelStage(level, block, new[-1].output if new else part.input_size, name))
        elif isinstance(part, nn.Linear):
            new = [DenseStage(part, block, f"{prefix}dense{len(stages)}")]
        elif isinstance(part, nn.Embedding):
            new = [EmbeddingStage(part, f"{prefix}embedding{len(stages)}")]
        elif type(part) in _ACTIVATIONS and width is not None:
            new = [ActivationStage(part, block, width, f"{prefix}{type(part).__name__.lower()}{len(stages)}")]
        else:
            names = ", ".join(["Linear", "Embedding", *(kind.__name__ for kind in _ACTIVATIONS)])
            raise ExportError(
                f"to_c: expected layers of glassgate, {names}, or a Sequential of these, got {description(part)}"
            )
        if width is not None and new[0].input != width:
            raise ExportError(
                f"to_c: {type(part).__name__} must have {width} inputs, one for each output of the part "
                f"before it, got {new[0].input}"
            )
        stages += new
    return stages


def _block_size(levels: Sequence[Level], parts: Sequence[nn.Module]) -> int:
    """The block size, in units, with the lowest estimated time."""
    directions = [direction for level in levels for direction in level.directions]
    units = [direction.hidden_size for direction in directions]
    units = units or [part.out_features for part in parts if isinstance(part, nn.Linear)] or [16]
    gates = max((len(d.step.gates) for d in directions if d.equations), default=1)
    fitting = [block for block in _COST if block * gates <= _MAX_SUMS] or [min(_COST)]
    return min(fitting, key=lambda block: sum(-(-n // block) * _COST[block] for n in units))
