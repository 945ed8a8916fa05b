"""The example of a dialect computes the same as the reference engine, for every cell whose values have units."""

import pytest
import torch

import glassgate as gg
from glassgate.engines.lowering.forward import Form
from glassgate.engines.lowering.ir import Port, Role
from glassgate.engines.lowering.passes import lowered_pass
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from tests.compare import noise
from tests.engines.costs import OF_CPU
from tests.engines.scalar_python import ScalarPython

L, N, D, H = 3, 2, 3, 4
WITHOUT_PROJECTION = {"JANET", "MGU", "ActivatedGRU", "GRUv3", "IndRNN", "LayerNormGRU", "MinGRU", "MinLSTM"}
CASES = [(0, name) for name in gg.cells.__all__]
CASES += [(2, name) for name in gg.cells.__all__ if name not in WITHOUT_PROJECTION]


@pytest.mark.parametrize(("projected", "name"), CASES)
def test_scalar_python_equals_the_reference_engine(projected: int, name: str) -> None:
    layer = gg.Recurrent(getattr(gg.cells, name)(), D, H, proj_size=projected, dtype=torch.float64)
    equations = equations_of(layer.cell, bool(projected))
    for k, parameter in enumerate(layer.parameters()):
        parameter.data += noise(k, *parameter.shape) / 2
    x = noise(90, L, N, D)
    weights = {key.rsplit("_l0", 1)[0]: parameter for key, parameter in layer.named_parameters()}
    widths = [projected or H, *[H] * (len(layer.cell.state) - 1)]
    initial = [noise(80 + k, N, width) for k, width in enumerate(widths)]
    inputs = {Port(Role.DATA): x} | {Port(Role.WEIGHT, key): weight.detach() for key, weight in weights.items()}
    inputs |= {Port(Role.INITIAL, state): v for state, v in zip(layer.cell.state, initial, strict=True)}
    program = lowered_pass(equations, build_trace(equations, OF_CPU), Form(), False)
    heads = layer.cell.heads
    sizes = {"T": L, "N": N, "D": D, "H": H, "P": widths[0], "U": H // heads, "V": widths[0] // heads}
    found = ScalarPython(program, sizes).run(inputs)
    with gg.engine("reference"), torch.no_grad():
        output, final = layer(x, tuple(v[None] for v in initial) if len(initial) > 1 else initial[0][None])
    torch.testing.assert_close(found[Port(Role.STATES, layer.cell.state[0])], output, rtol=1e-12, atol=1e-12)
    for state, value in zip(layer.cell.state, final if isinstance(final, tuple) else (final,), strict=True):
        torch.testing.assert_close(found[Port(Role.FINAL, state)], value[0], rtol=1e-12, atol=1e-12)
