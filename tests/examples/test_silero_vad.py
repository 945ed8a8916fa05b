"""The rebuilt Silero VAD has the probabilities of the model of the package, in Python and in C."""

import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.clients
FOLDER = Path(__file__).parents[2] / "examples/silero_vad"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module check.py of the example."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("check", "vad", "c_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import check

    return check


def test_every_frame_has_the_probability_of_the_package(check: ModuleType, tmp_path: Path) -> None:
    """The sound is vowels with pauses, in noise. The package finds speech in some frames and none in others."""
    time = torch.arange(3 * check.vad.RATE) / check.vad.RATE
    pitch = 2 * torch.pi * (120 * time + 3 * torch.sin(5 * time))
    voice = sum(torch.sin(k * pitch) / (1 + abs(k - 6)) for k in range(1, 30)) * (torch.sin(4 * time) > 0)
    frames = check.vad.to_frames((0.1 * voice + 0.001 * torch.randn(len(time)))[None])
    truth = check.package_model("silero_vad_16k_op15.onnx")(frames.numpy())
    assert truth.min() < 0.1 < 0.5 < truth.max()
    model = check.vad.load()
    np.testing.assert_allclose(check.run_all_frames(model, frames), truth, rtol=0, atol=5e-5)
    if shutil.which("gcc"):
        np.testing.assert_allclose(check.compile_c_model(model, tmp_path)(frames.numpy()), truth, rtol=0, atol=5e-5)


def test_a_missing_package_raises_an_error(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.vad, "files", lambda name: [])
    with pytest.raises(FileNotFoundError, match=r"pip install --no-deps 'silero-vad==6\.2\.3'"):
        check.vad.package_file("silero_vad_16k_op15.onnx")
