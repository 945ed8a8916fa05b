"""The guitar amplifier of examples/guitar_amp at a small size: the C program has the output of the layers."""

import importlib.util
import shutil
import subprocess
import wave
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples/guitar_amp"


def import_example() -> ModuleType:
    """Import train.py of the example."""
    spec = importlib.util.spec_from_file_location("train", FOLDER / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def samples(path: Path) -> np.ndarray:
    """The samples of a wav file, from -1 to 1."""
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def test_the_c_program_has_the_output_of_the_network(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    network = import_example().main([f"--output={tmp_path}", "--hidden-size=4", "--steps=2", "--seconds=1"])
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", f"-I{tmp_path}"]
    program = tmp_path / "amp"
    files = [FOLDER / "amp.c", tmp_path / "net.c", "-lm", "-o", program]
    build = subprocess.run(["gcc", *flags, *files], capture_output=True, text=True)
    assert build.returncode == 0, build.stderr[:3000]
    dry, wet = tmp_path / "guitar.wav", tmp_path / "amplified.wav"
    completed = subprocess.run([program, dry, wet], capture_output=True, text=True)
    assert "0.2 s of audio at 48000 Hz" in completed.stdout
    layer, head = network
    with torch.no_grad():
        expected = head(layer(torch.from_numpy(samples(dry))[:, None])[0])[:, 0]
    np.testing.assert_allclose(samples(wet), expected.clamp(-1, 1).numpy(), rtol=0, atol=1e-4)
    failed = subprocess.run([program, FOLDER / "amp.c", wet], capture_output=True, text=True)
    assert failed.returncode == 1
    assert "not a wav file" in failed.stderr
