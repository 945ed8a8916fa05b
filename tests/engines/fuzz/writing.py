"""Hypothesis generates the source code of cells: any operations, recurrent products, sums over rows and names."""

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn import functional as F

import glassgate as gg
from tests.engines.fuzz.names import AFFIXES, OF_TARGETS, OWN, REFUSED_PARAMETERS, TAKEN, hostile

ONE = (
    *(f"torch.{f}({{}})" for f in ("sigmoid", "tanh", "relu", "sin", "cos", "atan", "erf", "abs", "sign", "neg")),
    *(f"F.{f}({{}})" for f in ("softplus", "silu", "gelu", "elu", "selu", "mish", "logsigmoid", "softsign")),
    *(f"F.{f}({{}})" for f in ("leaky_relu", "hardtanh", "hardswish", "tanhshrink", "softshrink", "relu6")),
    *("{}.exp2().clamp(max=2)", "torch.expm1(-{}.abs())", "torch.log1p({} * {})", "torch.sqrt(1 + {}.square())"),
    *("torch.rsqrt({} * {} + 0.5)", "(1 - {})", "-{}", "{} ** 2", "(1 + {} * {}) ** 0.5", "1 / (1 + {} ** 2)"),
    *("torch.clamp({}, -0.5, 0.8)", "{}.clamp(min=-0.3)", "torch.where({} > 0, {}, 0.25)", "({} <= 0.5) * {}"),
    *(
        "{}.detach()",
        "torch.floor(3.3 * {} + 0.37)",
        "2.5 * {}",
        "{} / 3",
        "torch.exp(-{} * {})",
        "torch.log({} * {} + 1)",
    ),
    *("torch.logaddexp({}, torch.zeros_like({}))", "torch.where(({} > 0) & ~({} > 1) | ({} < -1), {}, -1.0)"),
)
TWO = (
    *("{} + {}", "{} - {}", "{} * {}", "{} + {}", "{} * {}", "{} / (1 + {}.square())", "torch.maximum({}, {})"),
    *("torch.minimum({}, {})", "torch.where({0} > {1}, {1}, 0.5 * {0})", "torch.lerp({}, {}, 0.3)"),
    *("torch.pow(1 + {}.square(), torch.tanh({}))", "torch.addcmul({0}, {1}, {0})", "torch.sub({}, {}, alpha=2)"),
)
ROW = (
    *("{}.mean(-1, keepdim=True)", "0.2 * {}.sum(-1, keepdim=True)", "torch.mean({}, -1, True)"),
    *("{}.var(-1, unbiased=False, keepdim=True)", "torch.tanh({}.square().mean(dim=-1, keepdim=True))"),
)
MASK = (
    *("{} > {}", "{} <= {}", "{} < 0.1", "{0} >= -0.2", "({} > 0) | ({} < -0.5)", "torch.sign({}) == torch.sign({})"),
    *("{} != {}", "({} < 0.7) & ~({} < -0.1)", "torch.logical_not({})", "({} > 0) ^ ({} > 0.2)"),
)
OF_MASK = (
    *("torch.where({m}, {x}, {y})", "torch.where({m}, {x}, 0.25)", "torch.where(~{m}, {x}, {y})", "{m} * {x} - {y}"),
    *("torch.where({m} & ({x} < {y}), {y}, {x})", "torch.where({m} | ({x} > 0.3), {x}, -0.5 * {y})"),
)


@dataclass(frozen=True)
class Written:
    """The source of a cell, the options of its layer, and the form of a call."""

    source: str
    options: dict[str, Any]
    """The options of `gg.Recurrent`, including the sizes."""
    L: int
    N: int
    lengths: tuple[int, ...] | None
    resets: bool
    seed: int = field(default=0)

    def cell(self) -> gg.Cell:
        """Run the source and return an instance of its class."""
        names: dict[str, Any] = {"torch": torch, "F": F, "gg": gg}
        exec(compile(self.source, "<written>", "exec"), names)
        return names["Written"]()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        """Code that reproduces the case."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return (
            f"\nimport torch\nimport torch.nn.functional as F\nimport glassgate as gg\n\n{self.source}\n"
            f"layer = gg.Recurrent(Written(){options}, dtype=torch.float64)\n"
            f"x = torch.randn({self.L}, {self.N}, layer.input_size, dtype=torch.float64)\n"
            f"lengths, resets = {self.lengths!r}, {self.resets!r}  # resets: torch.rand({self.L}, {self.N}) < 0.3\n"
            f"# seed {self.seed}\n"
        )


@st.composite
def names(draw: st.DrawFn, count: int) -> list[str]:
    """Draw different names, of which most are similar to each other."""
    chosen: list[str] = []
    while len(chosen) < count:
        base = draw(st.sampled_from(chosen) if chosen and draw(st.booleans()) else _pool())
        name = draw(st.sampled_from(AFFIXES)).format(base) if draw(st.integers(0, 2)) else base
        name = unicodedata.normalize("NFKC", name)
        if name.isidentifier() and name not in {*chosen, *TAKEN} and not name.startswith("__") and len(name) < 40:
            chosen.append(name)
    return chosen


@cache
def _pool() -> st.SearchStrategy[str]:
    """Return the names to draw from. Those of printed kernels are in the list twice, so they are drawn more often."""
    return st.sampled_from([*(w for w in (OWN + OF_TARGETS).split() if w not in TAKEN), *hostile()])


class _Step:
    """A step under construction: its lines, and the values that further lines can use."""

    def __init__(
        self, draw: st.DrawFn, wide: list[str], locals_: list[str], products: list[str], of_state: str
    ) -> None:
        self.of_state = of_state
        self.draw, self.wide, self.rows, self.locals = draw, wide, list[str](), locals_
        self.products, self.lines, self.masks = products, list[str](), list[str]()
        self.shared = {name for name in wide if name.startswith("p.")}
        """The values that are equal for all rows of the batch."""
        self._used: list[str] = []

    def operand(self) -> str:
        """Draw a value with a number per unit. Recent values are more likely."""
        candidates = self.wide[-4:] if self.draw(st.booleans()) else self.wide
        self._used.append(self.draw(st.sampled_from(candidates)))
        return self._used[-1]

    def value(self) -> str:
        """Draw an expression of one or two values, or of a value and the number of a row."""
        draw = self.draw
        kind = draw(st.integers(0, 9))
        if kind < 4:
            x = self.operand()
            template = draw(st.sampled_from(ONE))
            return template.format(*[x] * template.count("{}"))
        if kind < 8 or not (self.rows or self.products):
            return draw(st.sampled_from(TWO)).format(self.operand(), self.operand())
        if kind == 8 and self.products:
            u = draw(st.sampled_from([value for value in self.wide if value not in self.shared]))
            self._used.append(u)
            return f"a.hh({u}).{draw(st.sampled_from(self.products))}"
        if self.rows:
            row = draw(st.sampled_from(self.rows))
            self._used.append(row)
            return draw(st.sampled_from(("{} - {}", "{} * {}", "{} / (1 + {} ** 2)", "{} + torch.tanh({})"))).format(
                self.operand(), row
            )
        return f"torch.tanh({self.operand()})"

    def mask(self) -> str:
        """Draw a comparison: of two values, of a value and the number of a row, or of the numbers of a row."""
        first = self.draw(st.sampled_from(self.rows)) if self.rows and self.draw(st.booleans()) else self.operand()
        second = self.draw(st.sampled_from([*self.rows, self.operand()]))
        template = self.draw(st.sampled_from(MASK))
        self._used = [first, second][: len(re.findall(r"\{0?\}", template))]
        return template.format(first, second)

    def of_mask(self) -> str:
        """Draw an expression that reads a mask."""
        m = self.draw(st.sampled_from(self.masks))
        template = self.draw(st.sampled_from(OF_MASK))
        values = {"m": m, "x": self.operand(), "y": self.operand()}
        self._used = [value for name, value in values.items() if f"{{{name}}}" in template]
        return template.format(**values)

    def write(self) -> None:
        """Add a line."""
        name, self._used = self.locals.pop(), []
        if self.draw(st.integers(0, 5)) == 0:
            name = f"{name}_mask" if self.draw(st.booleans()) else name
            self.lines.append(f"{name} = {self.mask()}")
            self.masks.append(name)
            if self.shared.issuperset(self._used):
                self.shared.add(name)
        elif self.draw(st.integers(0, 5)) == 0 and len(self.rows) < 3:
            name = f"{name}_of_row"
            self.lines.append(f"{name} = {self.draw(st.sampled_from(ROW)).format(self.operand())}")
            self.rows.append(name)
            if self.shared.issuperset(self._used):
                self.shared.add(name)
        else:
            value = self.of_mask() if self.masks and self.draw(st.integers(0, 2)) == 0 else self.value()
            if self.shared.issuperset(self._used):
                name = f"{name}_of_none"
                self.shared.add(name)
            self.lines.append(f"{name} = {value}")
            self.wide.append(name)

    def state(self) -> str:
        """Draw a new state. A value that all rows of the batch or all units share is broadcast to all of them."""
        if self.draw(st.integers(0, 5)) == 0:
            value = self.draw(st.sampled_from([*self.rows, *self.wide, "0.5"]))
            return f"(torch.zeros_like({self.of_state}) + {value})"
        wide = [value for value in self.wide if value not in self.shared]
        x = self.draw(st.sampled_from(wide[-2:] if self.draw(st.booleans()) else wide))
        return f"torch.tanh({x})" if self.draw(st.booleans()) else x


@st.composite
def cells(draw: st.DrawFn, max_lines: int = 8) -> Written:
    """Draw a cell, the options of its layer, and the form of a call."""
    counts = [draw(st.integers(1, top)) for top in (4, 3)]
    parameters = draw(st.integers(0, 3))
    lines = draw(st.integers(1, max_lines))
    every = draw(names(sum(counts) + parameters + lines))
    gates, state = every[: counts[0]], every[counts[0] : sum(counts)]
    own, local = every[sum(counts) : sum(counts) + parameters], every[sum(counts) + parameters :]
    refused = {*REFUSED_PARAMETERS, *(f"{name}_0" for name in state)}
    own = [f"{name}_own" if name in refused else name for name in own]
    if draw(st.booleans()):
        local = [draw(st.sampled_from(state)) if draw(st.booleans()) else name for name in local]
        local = list(dict.fromkeys([*local, *every[-lines:]]))[:lines]
    recurrent, heads = draw(st.integers(0, 5)) > 0, draw(st.sampled_from((1, 1, 1, 2)))
    projected = recurrent and draw(st.integers(0, 4)) == 0
    per_gate = {name: draw(st.booleans()) for name in own}

    wide = [f"a.{gate}" for gate in gates] + [f"a.ih.{gate}" for gate in gates[:2]]
    wide += [f"a.hh.{gate}" for gate in gates[-2:]] if recurrent else []
    wide += [f"s.{name}" for name in state[projected:]]
    wide += [f"p.{name}.{draw(st.sampled_from(gates))}" if per_gate[name] else f"p.{name}" for name in own]
    step = _Step(draw, wide, local[::-1], gates if recurrent and not projected else [], f"a.{gates[0]}")
    for _ in range(lines):
        step.write()
    new = [f"{k + 1} * {step.state()}" for k in range(len(state))]
    if (shown := gates[0]) not in local:  # a recording shows this gate under its name in the cell
        step.lines.insert(0, f"{shown} = torch.sigmoid(1.25 * a.{shown})")
        new[0] = f"{shown} * {new[0]}"
    new[0] = f"a.update({new[0]})" if draw(st.booleans()) else new[0]
    body = "\n".join(f"        {line}" for line in step.lines)
    specs = "".join(f"{name!r}: gg.Parameter(0.5, {per_gate[name]}), " for name in own)
    source = (
        "class Written(gg.Cell):\n"
        f"    gates = {tuple(gates)!r}\n    state = {tuple(state)!r}\n    parameters = {{{specs}}}\n"
        f"    recurrent, heads = {recurrent}, {heads}\n\n"
        f"    def step(self, a, s{', p' if own else ''}):\n{body}\n        return {', '.join(new)},\n"
    )
    H = heads * draw(st.integers(1, 4)) if heads > 1 else draw(st.integers(1, 9))
    options: dict[str, Any] = {"input_size": draw(st.integers(1, 4)), "hidden_size": H}
    if projected and heads < H:
        options["proj_size"] = heads * draw(st.integers(1, max(1, (H - 1) // heads)))
    options["bidirectional"], options["bias"] = draw(st.booleans()), draw(st.integers(0, 3)) > 0
    L, N = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    lengths = draw(st.none() | st.lists(st.integers(0, L), min_size=N, max_size=N).map(tuple))
    return Written(source, options, L, N, lengths, draw(st.booleans()), seed=draw(st.integers(0, 99)))
