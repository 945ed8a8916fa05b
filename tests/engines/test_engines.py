"""Results and gradients of every engine are equal to those of the reference, for each cell, shape and dtype.

Each shape runs in each combination of directions and resets for each cell, but not for each dtype. `make fuzz` runs
every combination.
"""

from collections.abc import Iterable, Iterator
from itertools import product

import pytest
import torch

import glassgate as gg
from glassgate.cell import Cell
from glassgate.engines.choose import engines, run
from glassgate.engines.contract import Direction
from glassgate.layout import arrange
from tests.cases import SHAPES, Shape
from tests.compare import Results, check, measure, noise

CELLS = {
    "RNN": gg.cells.RNN(),
    "ReLU": gg.cells.RNN("relu"),
    "GRU": gg.cells.GRU(),
    "GRUP": gg.cells.GRUP(),
    "LSTM": gg.cells.LSTM(),
}
HALF = (torch.bfloat16, torch.float16)
DTYPES = (torch.float64, torch.float32, *HALF)
WAYS = (">", "<", "><")
EVERY_CALL = [*product(SHAPES, WAYS, (False, True))]
"""The name of the shape, the directions, and whether the call has resets."""
# The rounding of torch's kernels in 16 bits is not tested here. Other tests compare the engine "torch" with torch.nn.
RUNS = [
    (engine, dtype, cell)
    for engine, dtype, cell in product(engines(), DTYPES, CELLS)
    if engine not in ("reference", "triton") and not (engine == "torch" and (dtype in HALF or cell == "GRUP"))
]


class Case:
    """A call of an engine for a layer with the directions `ways`: ">" is forward, "<" is reverse."""

    def __init__(self, cell: Cell, shape: Shape, ways: str, resets: bool = False) -> None:
        self.cell, self.shape, self.ways, self.resets = cell, shape, ways, resets

    def call(self, dtype: torch.dtype) -> Results:
        """Run the call. The tensors are rounded to bfloat16, so that they are equal in every dtype."""
        cell, s = self.cell, self.shape
        widths = dict.fromkeys(cell.state, s.H_cell) | {cell.state[0]: s.H_out or s.H_cell}
        shapes = {"input": (s.L, s.N, s.H_in)}
        for way in self.ways:
            shapes |= {
                f"{way} {name}": tensor_shape for name, tensor_shape in cell.shapes(s.H_in, s.H_cell, s.H_out).items()
            }
            shapes |= {f"{way} {state}_0": (s.N, width) for state, width in widths.items()}
        leaves = {}
        for k, (name, tensor_shape) in enumerate(shapes.items()):
            scale = s.H_cell**-0.5 if "weight" in name or "bias" in name else 1.0
            leaves[name] = (noise(k, *tensor_shape) * scale).bfloat16().to(dtype).requires_grad_()
        resets = noise(99, s.L, s.N) > 0.5 if self.resets else None
        steps, _ = arrange("test", leaves["input"], s.H_in, False, s.lengths, resets)
        directions = [
            Direction(
                cell,
                {name: leaves[f"{way} {name}"] for name in cell.shapes(s.H_in, s.H_cell, s.H_out)},
                tuple(leaves[f"{way} {state}_0"] for state in cell.state),
                way == "<",
            )
            for way in self.ways
        ]
        outputs = {}
        for way, result in zip(self.ways, run(steps, directions), strict=True):
            outputs[f"{way} output"] = result.states[0]
            outputs |= {f"{way} {state}_n": v for state, v in zip(cell.state, result.final, strict=True)}
        return measure(outputs, leaves)


def is_supported(engine: str, cell: str, shape: Shape, ways: str, resets: bool) -> bool:
    """Whether an engine supports a call."""
    if engine != "torch":
        return not (shape.H_out and cell == "GRU")  # a GRU reads its output unit by unit, so it has no projection
    if resets or (shape.H_out and cell != "LSTM") or shape.lengths == (0, 0):
        return False
    return ways != "<" or shape.lengths is None


def some_calls(k: int) -> Iterator[tuple[str, str, bool]]:
    """Yield each shape with one choice of directions without resets, and another with resets.

    Three consecutive numbers `k` yield every call.
    """
    for s, shape in enumerate(SHAPES):
        for resets in (False, True):
            yield shape, WAYS[(k + s + resets) % 3], resets


@pytest.mark.parametrize(("engine", "dtype", "cell"), RUNS, ids=lambda v: str(v).removeprefix("torch."))
def test_engine_equals_the_reference(engine, dtype, cell):
    every = (engine, dtype) == ("torch", torch.float32)  # the engine has too few dtypes for every combination
    check_engine(engine, dtype, cell, EVERY_CALL if every else some_calls(DTYPES.index(dtype) + [*CELLS].index(cell)))


@pytest.mark.matrix
@pytest.mark.parametrize(("engine", "dtype", "cell"), RUNS, ids=lambda v: str(v).removeprefix("torch."))
def test_engine_equals_the_reference_in_every_call(engine, dtype, cell):
    check_engine(engine, dtype, cell)


def check_engine(engine, dtype, cell, calls: Iterable[tuple[str, str, bool]] = EVERY_CALL, slack=1.0):
    """Check an engine with some calls; `slack` as in `compare.check`."""
    for name, ways, resets in calls:
        case = Case(CELLS[cell], SHAPES[name], ways, resets)
        if not is_supported(engine, cell, SHAPES[name], ways, resets):
            with gg.engine(engine), pytest.raises(gg.EngineError):
                case.call(dtype)
            continue
        with gg.engine(engine):
            got = case.call(dtype)
        with gg.engine("reference"):
            truth = case.call(torch.float64)
            eager = truth if dtype == torch.float64 else case.call(dtype)
        try:
            check(got, truth, eager, slack)
        except AssertionError as fault:
            fault.add_note(f"shape {name!r}, directions {ways}, resets {resets}")
            raise
