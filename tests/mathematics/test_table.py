"""Every operation equals torch at extreme values: in primitive operations, on the CPU, in C, JavaScript and ONNX."""

import json
import shutil
import subprocess
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor

import glassgate as gg
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.evaluate import evaluate
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import COMPOSED, OPERATIONS, PRIMITIVES
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from glassgate.export.javascript import Weights, emit, runtime
from tests.export.javascript import node
from tests.mathematics.compare import Results, Rules, check
from tests.mathematics.table import (
    FUNCTIONS,
    GROUPS,
    PRIMITIVE,
    initial_states,
    layer_of,
    operation_of,
    values,
)

F32, F64 = torch.float32, torch.float64
ALL = tuple(FUNCTIONS)


def run(engine: str, names: tuple[str, ...], dtype: torch.dtype, gradients: bool = True) -> Results:
    """The results of one step and, if requested, the gradients of the initial states for gradients of one."""
    layer = layer_of(names, dtype)
    initial = {name: v[None].requires_grad_(gradients) for name, v in initial_states(layer).items()}
    with gg.engine(engine):
        _, final = layer(torch.zeros(1, len(values(dtype)), 1, dtype=dtype), tuple(initial.values()))
    results = dict(zip(layer.cell.state, final, strict=True))
    outputs = [results[f"x_{name}"] for name in names if results[f"x_{name}"].requires_grad]
    found = {name: v.detach()[0] for name, v in results.items()}
    if gradients:
        ones = [torch.ones_like(v) for v in outputs]
        d = torch.autograd.grad(outputs, list(initial.values()), ones, allow_unused=True, materialize_grads=True)
        found |= {f"grad {name}": v[0] for name, v in zip(initial, d, strict=True)}
    return found


def test_every_operation_is_in_the_table() -> None:
    reductions = {"mean", "var"}
    assert {*OPERATIONS, *COMPOSED} == {operation_of(name) for name in FUNCTIONS} | {"gelu_tanh"} | reductions


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_compositions_and_gradients_in_primitives(dtype: torch.dtype) -> None:
    """The graphs that backends get, evaluated with torch: all operations are primitive."""
    layer = layer_of(ALL, dtype)
    states, trace = initial_states(layer), build_trace(equations_of(layer.cell), COSTS)
    assert {node.op for node in trace.forward.nodes + trace.backward.nodes} & {*OPERATIONS} <= PRIMITIVES
    zero, one = torch.zeros(2, 1, 1, dtype=dtype)[0], torch.ones(1, 1, dtype=dtype)
    saved: dict[object, Tensor] = {}

    def leaf(node: Node, args: tuple[object, ...]) -> Tensor:
        match node.op:
            case ops.State(name):
                return states[name]
            case ops.Saved():
                return saved[node.op]
            case ops.Gradient(state):
                return one if state.startswith("x_") else zero
            case ops.Constant(number):
                return torch.full_like(zero, number)
            case _:
                assert isinstance(node.op, ops.InputHalf), node
                return zero

    forward = evaluate(trace.forward.nodes, leaf, dtype)
    saved |= {key: forward[node] for key, node in trace.saved.items()}
    backward = evaluate(trace.backward.nodes, leaf, dtype)
    got = {}
    for name, new, d in zip(layer.cell.state, trace.forward.states, trace.backward.d_states, strict=True):
        got[name] = forward[new].expand_as(states[name])
        got[f"grad {name}"] = backward[d].expand_as(states[name])
    check(got, ALL, dtype)


@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_values_on_the_cpu(group: int) -> None:
    check(run("cpu", GROUPS[group], F32, gradients=False), GROUPS[group], F32)


@pytest.mark.parametrize("part", range(4))
def test_primitives_on_the_cpu_in_float64(part: int) -> None:
    names = PRIMITIVE[part::4]
    check(run("cpu", names, F64, gradients=False), names, F64)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_gradients_on_the_cpu(group: int, dtype: torch.dtype) -> None:
    check(run("cpu", GROUPS[group], dtype), GROUPS[group], dtype)


def test_session() -> None:
    names = PRIMITIVE[::3]
    layer = layer_of(names, F32)
    states = initial_states(layer)
    session = gg.freeze(layer)
    _, final = session(torch.zeros(1, len(values(F32)), 1), tuple(v[None] for v in states.values()))
    check({name: v[0] for name, v in zip(states, final, strict=True)}, names, F32)


STRICT, FAST = ["-std=c99", "-O2"], ["-std=gnu99", "-O3", "-march=native", "-ffast-math"]
ABSOLUTE_SIGMOID = ("sigmoid", 1e-6, 1e-7)
"""In float32, sigmoid has an absolute error in C and in ONNX Runtime."""
C_RULES = {F32: Rules(error=(ABSOLUTE_SIGMOID,)), F64: Rules()}
FAST_RULES = Rules(zero_signs=False, ordinary=True, error=(ABSOLUTE_SIGMOID,))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(
    ("flags", "dtype"), [(STRICT, F32), (STRICT, F64), (FAST, F32)], ids=["float32", "float64", "fast-math"]
)
def test_c(compiler: str, flags: list[str], dtype: torch.dtype, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    layer = layer_of(ALL, dtype)
    _, source = gg.to_c(layer, tmp_path, name="net")
    states = initial_states(layer)
    del states["h"]
    count = len(values(dtype))
    real = "float" if dtype == F32 else "double"
    copy = {name: f"s.layer0_forward_{name}, v, sizeof v" for name in states}
    program = [
        '#include "net.h"\n#include <stdio.h>\n#include <string.h>',
        f"static net_state s;\nint main(void) {{\n    {real} x[1] = {{0}}, y[{count}], v[{count}];",
        f"    for (int row = 0; row < {count}; row++) {{\n        net_init(&s);",
        *(
            f"        if (fread(v, sizeof v, 1, stdin) != 1) return 1;\n        memcpy({copy[name]});"
            for name in states
        ),
        "        net_step(&s, x, y);",
        *(f"        fwrite(s.layer0_forward_{name}, sizeof v, 1, stdout);" for name in states),
        "    }\n    return 0;\n}",
    ]
    (tmp_path / "main.c").write_text("\n".join(program), encoding="utf-8")
    command = [compiler, *flags, "-I", str(tmp_path), str(tmp_path / "main.c"), str(source), "-lm", "-o", "net"]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=120)
    numbers = torch.stack(list(states.values()), 1).numpy().tobytes()
    output = subprocess.run([tmp_path / "net"], input=numbers, capture_output=True, check=True, timeout=60).stdout
    results = torch.frombuffer(bytearray(output), dtype=dtype).view(count, len(states), count)
    rules = FAST_RULES if flags is FAST else C_RULES[dtype]
    check(dict(zip(states, results.unbind(1), strict=True)), ALL, dtype, rules)


RUN_ROWS = """
const names = Object.keys(start), count = start.h.length, rows = require("fs").readFileSync(0);
const numbers = new Float32Array(rows.buffer, rows.byteOffset, rows.length / 4);
const results = new Float32Array(numbers.length);
for (let at = 0; at < numbers.length; at += names.length * count) {
  names.forEach((name, k) => (start[name] = numbers.slice(at + k * count, at + (k + 1) * count)));
  const { parts } = runLayer(layer, steps, new Float32Array(1), 1, { start: { [label]: start } });
  names.forEach((name, k) => results.set(parts[label].values[name], at + k * count));
}
require("fs").writeSync(1, Buffer.from(results.buffer));
"""


def test_javascript(tmp_path: Path) -> None:
    layer, weights = layer_of(ALL, F32), Weights()
    script, states = emit(layer, weights), initial_states(layer)
    (label,) = (each["label"] for level in script.layer["levels"] for each in level["directions"])
    program = [
        f'"use strict";\n{runtime()}\nconst steps = {{{script.steps}}}, label = {json.dumps(label)};',
        f"const layer = withArrays({json.dumps(script.layer)}, unpackWeights({json.dumps(weights.packed())}));",
        f"const start = {{ ...layer.levels[0].directions[0].initial }};\n{RUN_ROWS}",
    ]
    (tmp_path / "program.js").write_text("\n".join(program), encoding="utf-8")
    numbers = torch.stack(list(states.values()), 1)
    with (tmp_path / "results").open("wb") as file:
        command = [node(), str(tmp_path / "program.js")]
        subprocess.run(command, input=numbers.numpy().tobytes(), stdout=file, check=True, timeout=120)
    output = bytearray((tmp_path / "results").read_bytes())
    results = torch.frombuffer(output, dtype=F32).view(numbers.shape)
    check(dict(zip(states, results.unbind(1), strict=True)), ALL, F32)


ABSOLUTE = ("sigmoid", "sin", "cos", "tan", "sinc")
ONNX_ERRORS = {F32: (ABSOLUTE_SIGMOID,), F64: tuple((name, 1e-15, 1e-15) for name in ABSOLUTE)}


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_onnx(dtype: torch.dtype, tmp_path: Path) -> None:
    layer = layer_of(ALL, dtype)
    path = gg.to_onnx(layer, tmp_path / "model.onnx", step=True, verify=False)
    states = initial_states(layer)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)
    inputs = {f"{name}_0": v[None].numpy() for name, v in states.items()}
    inputs["input"] = torch.zeros(len(values(dtype)), 1, dtype=dtype).numpy()
    outputs = dict(zip([each.name for each in session.get_outputs()], session.run(None, inputs), strict=True))
    got = {name: torch.from_numpy(outputs[f"{name}_n"][0]) for name in states}
    check(got, ALL, dtype, Rules(zero_signs=False, error=ONNX_ERRORS[dtype]))
