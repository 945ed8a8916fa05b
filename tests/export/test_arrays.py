"""Cells that declare axes give the same results in C, JavaScript and sessions as on the reference engine."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import glassgate as gg
from glassgate.export.javascript import Weights, emit
from tests.compare import noise
from tests.engines.fuzz.drawing import check
from tests.engines.fuzz.targets import FURTHER_BUILDS, TARGETS, Target, Trial, run_c, trial_of_layer
from tests.engines.llvm_cpu.array_cells import Projectable
from tests.export.cases import ARRAYS, drawn, layer_of_arrays
from tests.export.javascript import run_in_node

SELECTED = [target for target in (*TARGETS, *FURTHER_BUILDS) if target.name != "ONNX Runtime"]  # see test_onnx.py
pytestmark = pytest.mark.filterwarnings("ignore:cell .* runs on the reference engine")


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    """Every cell, in layers with one or two directions and one or two levels."""
    trials = []
    for k, name in enumerate(ARRAYS):
        options: dict[str, Any] = {
            "bidirectional": bool(k % 2),
            "learn_initial_state": bool(k % 3),
            "bias": bool(k % 5),
        }
        options |= {} if ARRAYS[name].inputs or k % 4 else {"num_layers": 2, "residual": True}
        trials.append(trial_of_layer(name, layer_of_arrays(name, dtype=torch.float64, **options), L=4))
    projected = gg.Recurrent(Projectable(), 3, 4, num_layers=2, proj_size=2, bidirectional=True, dtype=torch.float64)
    return [*trials, trial_of_layer("projected", drawn(projected), L=4)]


@pytest.mark.parametrize("target", SELECTED, ids=lambda target: target.name)
def test_every_cell_on_every_target(target: Target, trials: list[Trial], tmp_path: Path) -> None:
    if "Clang" in target.name and not shutil.which("clang"):
        pytest.skip("clang is not installed")
    check(trials, [target], tmp_path)


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    """Large inputs make some intermediate numbers infinite or NaN."""
    trials = []
    for name in ("DeltaRule", "MLSTM", "LinearAttention", "step with softmax", "step with maxima"):
        trial = trial_of_layer(name, layer_of_arrays(name, dtype=torch.float64), L=6)
        trial.x[2:] *= 1e200
        with gg.engine("reference"):
            trials.append(Trial(name, trial.layer, trial.x, trial.layer(trial.x)[0].detach(), 0.0))
    assert any(trial.expected.isnan().any() for trial in trials)
    for trial, result in zip(trials, run_c(trials, tmp_path, True, "gcc", "-O1"), strict=True):
        torch.testing.assert_close(result, trial.expected.reshape(-1), equal_nan=True, rtol=1e-9, atol=1e-9)


def test_one_step_of_a_chain_with_weights_in_a_file(tmp_path: Path) -> None:
    chain = torch.nn.Sequential(torch.nn.Linear(5, 3), layer_of_arrays("GatedDeltaNet"), torch.nn.Linear(8, 2))
    header, source = gg.to_c(chain, tmp_path, "net", weights="file")
    assert "void net_step(net_state *s, const float *x, float *y);" in header.read_text()
    assert "float layer0_forward_S[24];" in header.read_text()  # the memory is updated in place
    assert "new_S" not in source.read_text()


@pytest.mark.parametrize("name", ["step with softmax", "GatedDeltaNet"])
def test_the_text_of_a_layer_does_not_depend_on_what_was_exported_before(tmp_path: Path, name: str) -> None:
    layer, texts = layer_of_arrays(name), []
    for folder in ("a", "b"):
        _, source = gg.to_c(layer, tmp_path / folder)
        texts.append((source.read_text(), emit(layer, Weights()).steps))
    assert texts[0] == texts[1]


def test_scripts_edit_states(tmp_path: Path) -> None:
    """A script can hold elements of a state. Values that the author has named are stored too."""
    layer, weights = layer_of_arrays("DeltaRule"), Weights()
    script = emit(layer, weights)
    x = noise(0, 5, layer.input_size)
    edits = [[], [{"name": "layer0.forward.S", "kind": "hold", "value": 0.5}]]
    calls = [{"layer": 0, "x": x.flatten().tolist(), "count": len(x), "edits": each} for each in edits]
    plain, held = run_in_node(tmp_path, [script], weights, calls)
    with gg.engine("reference"), gg.record(layer) as tape:
        layer(x[:, None].float())
    for name in ("S", "k", "old"):
        expected = tape[f"layer0.forward.{name}"].flatten()
        torch.testing.assert_close(
            torch.tensor(plain["values"]["layer0.forward"][name]), expected, rtol=1e-4, atol=1e-4
        )
    q = (x.float() @ layer.weight_ih_l0.T + layer.bias_ih_l0)[:, :8].detach().unflatten(1, (2, 4))
    expected = (0.5 * q.sum(-1, keepdim=True)).expand(-1, -1, 3).flatten()
    torch.testing.assert_close(torch.tensor(held["outputs"][0]), expected, rtol=1e-4, atol=1e-4)
