"""Runs layers with generated cells on every target: kernels, sessions, C, JavaScript and ONNX Runtime."""

import copy
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.export.javascript import Weights, emit
from glassgate.export.onnx_verify import Session
from tests.compare import noise
from tests.engines.fuzz.interpreted import interpreted
from tests.engines.fuzz.writing import Written
from tests.export.javascript import run_in_node

WARNINGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@dataclass
class Trial:
    """A layer in eval mode, one input sequence, and the output of the reference engine in float64.

    Attributes:
        layer: the layer in float64.
        x: (L, H_in).
        expected: (L, D * H_out).
        uncertainty: the change of the output when the parameters and the input change by the precision of float32. It
            is large where a step compares or rounds numbers that are almost equal.
    """

    written: Written | str
    layer: gg.Recurrent
    x: Tensor
    expected: Tensor
    uncertainty: float


def trial_of(written: Written) -> Trial:
    """Return the trial of a generated cell."""
    torch.manual_seed(written.seed)
    layer = gg.Recurrent(written.cell(), **written.options, learn_initial_state=True, dtype=torch.float64)
    return trial_of_layer(written, layer, written.L, written.seed)


def trial_of_layer(written: Written | str, layer: gg.Recurrent, L: int, seed: int = 0) -> Trial:
    """Return the trial of a layer in float64, with random parameters."""
    layer.eval()
    with torch.no_grad(), gg.engine("reference"):
        for k, parameter in enumerate(layer.parameters()):
            parameter.copy_((parameter + noise(seed + k, *parameter.shape) / 2).float())
        x = noise(seed, L, layer.input_size).float().double()
        expected = layer(x)[0]
        changes = []
        for k in range(3):
            near = copy.deepcopy(layer)
            for n, parameter in enumerate(near.parameters()):
                parameter.mul_(1 + 3e-7 * noise(100 * k + n, *parameter.shape))
            changes.append(near(x * (1 + 3e-7 * noise(50 + k, *x.shape)))[0] - expected)
        uncertainty = float(torch.stack([*changes, layer.float()(x.float())[0].double() - expected]).abs().max())
    return Trial(written, layer.double(), x, expected, uncertainty)


@contextmanager
def in_dtype(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """A context in which parameters have this dtype. A copy of a layer would be traced again."""
    module.to(dtype)
    try:
        yield
    finally:
        module.double()  # the numbers of trials are exact in float32


def run_c(trials: Sequence[Trial], folder: Path, double: bool, compiler: str, *flags: str) -> list[Tensor]:
    """Return the outputs of one C program with all layers. Another compiler compiles the same files."""
    folder = folder / ("double" if double else "float")
    if not (folder / "main.c").exists():
        folder.mkdir(exist_ok=True)
        _write_c(trials, folder, double)
    _run([compiler, *WARNINGS, *flags, "main.c", "nets.c", "-o", "program", "-lm"], folder)
    numbers = torch.from_numpy(np.frombuffer(_run(["./program"], folder), np.float64 if double else np.float32).copy())
    return list(numbers.split([trial.expected.numel() for trial in trials]))


def _write_c(trials: Sequence[Trial], folder: Path, double: bool) -> None:
    """Write the layers in C, and a program that prints the bytes of their outputs."""
    layers = nn.ModuleDict({str(k): trial.layer for k, trial in enumerate(trials)})
    with in_dtype(layers, torch.float64 if double else torch.float32):
        gg.to_c(layers, folder, "nets")
    real, program = ("double" if double else "float"), ["#include <stdio.h>", '#include "nets.h"']
    for k, trial in enumerate(trials):
        values = ", ".join(v.hex() for v in trial.x.reshape(-1).tolist())
        program += [
            f"static int run{k}(void) {{",
            f"    static nets_{k}_state s;",
            f"    static const {real} x[] = {{{values}}};",
            f"    static {real} y[{len(trial.x)} * nets_{k}_output_size];",
            f"    nets_{k}_init(&s);",
            f"    if (nets_{k}_run(&s, x, y, {len(trial.x)})) return 1;",
            "    return fwrite(y, sizeof y, 1, stdout) != 1;",
            "}",
        ]
    calls = " || ".join(f"run{k}()" for k in range(len(trials)))
    (folder / "main.c").write_text("\n".join([*program, f"int main(void) {{ return {calls}; }}\n"]))


def _run(command: list[str], folder: Path) -> bytes:
    """Return the standard output of a program. A negative exit code is the number of the signal that ended it."""
    done = subprocess.run(command, cwd=folder, capture_output=True)
    assert done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr.decode()[:3000]}"
    return done.stdout


def run_javascript(trials: Sequence[Trial], folder: Path) -> list[Tensor]:
    """Return the outputs of one process of Node."""
    weights = Weights()
    scripts = [emit(trial.layer, weights) for trial in trials]
    calls = [
        {"layer": k, "x": trial.x.flatten().tolist(), "count": len(trial.x), "edits": []}
        for k, trial in enumerate(trials)
    ]
    return [torch.tensor(result["outputs"][0]) for result in run_in_node(folder, scripts, weights, calls)]


def run_onnx(trials: Sequence[Trial], folder: Path) -> list[Tensor]:
    """Return the outputs of ONNX Runtime."""
    outputs = []
    for k, trial in enumerate(trials):
        path = gg.to_onnx(trial.layer, folder / f"{k}.onnx", lengths=False, defaults=True, verify=False)
        outputs.append(Session(path)(input=trial.x[:, None])["output"])
    return outputs


def run_session(trials: Sequence[Trial], folder: Path) -> list[Tensor]:
    """Return the outputs of frozen layers. Python runs their kernels."""
    with interpreted():
        return [gg.freeze(trial.layer)(trial.x)[0] for trial in trials]


@dataclass(frozen=True)
class Target:
    """A program that runs layers.

    Attributes:
        run: returns the output of each trial. It may write into the folder.
        exact: whether the results are computed in float64.
    """

    name: str
    run: Callable[[Sequence[Trial], Path], list[Tensor]]
    exact: bool = False

    def faults(self, trials: Sequence[Trial], folder: Path) -> list[str]:
        """Return a description of each trial that fails, or whose result differs from the reference."""
        try:
            results = self.run(trials, folder)
        except Exception as error:  # of the emitter, a compiler or the emitted program
            if len(trials) == 1:
                return [f"{self.name}: {type(error).__name__}: {error}: {trials[0].written}"]
            found = [fault for trial in trials for fault in self._faults_alone(trial)]
            return found or [f"{self.name}: {error}, but only with all {len(trials)} cells together"]
        errors = [self._error(trial, result) for trial, result in zip(trials, results, strict=True)]
        return [f"{self.name}: {error}: {t.written}" for t, error in zip(trials, errors, strict=True) if error]

    def _faults_alone(self, trial: Trial) -> list[str]:
        with TemporaryDirectory() as folder:
            return self.faults([trial], Path(folder))

    def _error(self, trial: Trial, result: Tensor) -> str:
        largest = max(1.0, float(trial.expected.abs().max()))
        allowed = 1e-9 * largest if self.exact else 1e-4 * largest + 30 * trial.uncertainty
        error = float((result.double().reshape(trial.expected.shape) - trial.expected).abs().max())
        return "" if error <= allowed else f"off by {error:.1e}, allowed {allowed:.1e}"


def _c(double: bool, compiler: str, *flags: str) -> Callable[[Sequence[Trial], Path], list[Tensor]]:
    return lambda trials, folder: run_c(trials, folder, double, compiler, *flags)


TARGETS = (
    Target("session", run_session, exact=True),
    Target("JavaScript", run_javascript),
    Target("ONNX Runtime", run_onnx, exact=True),
    Target("C by GCC", _c(True, "gcc", "-O0"), exact=True),
)
FURTHER_BUILDS = (
    Target("C by Clang with sanitizers", _c(True, "clang", "-O0", *SANITIZERS), exact=True),
    Target("C in float32, one lane", _c(False, "gcc", "-O0", "-DONE_LANE")),
)
"""Builds of the same C code, which `make fuzz` adds."""
