"""Silero VAD (voice activity detection), rebuilt with a glassgate layer from the weights of the package `silero-vad`.

The weights are read from the package's ONNX file; none of its code is imported, and nothing is unpickled.
"""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import onnx
import torch
from onnx.numpy_helper import to_array
from torch import Tensor, nn
from torch.nn.functional import pad

import glassgate as gg

RATE = 16_000
"""Samples per second."""
FRAME, CONTEXT = 512, 64
"""Samples of a frame, and of the end of the frame before, which the network also reads."""

PARAMETERS = "weight", "bias"


class Vad(nn.Module):
    """The probability of speech in each frame of 32 ms.

    Four spectra of a frame (a convolution with sines and cosines) go through four convolutions, whose result is one
    step of an LSTM. A linear map of the LSTM's output gives the probability.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, stride=128, bias=False)  # 129 real parts, then 129 imaginary parts
        self.encoder = nn.Sequential(
            nn.Conv1d(129, 128, 3, padding=1), nn.ReLU(),
            nn.Conv1d(128, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv1d(64, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv1d(64, 128, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.lstm = gg.LSTM(128, 128)
        self.head = nn.Linear(128, 1)

    def forward(self, frames: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Read frames.

        Args:
            frames: (L, N, 576), L frames of N streams; see `framed`.
            h, c: (1, N, 128), the state; zero at the beginning.

        Returns:
            the probabilities (L, N), and the new state.
        """
        samples = pad(frames.flatten(0, 1), (0, CONTEXT), "reflect")
        real, imaginary = self.spectrum(samples[:, None]).chunk(2, 1)
        features = self.encoder((real**2 + imaginary**2).sqrt())[..., 0]
        output, (h, c) = self.lstm(features.unflatten(0, frames.shape[:2]), (h, c))
        return self.head(output.relu()).sigmoid()[..., 0], h, c


def framed(audio: Tensor) -> Tensor:
    """Cut streams (N, S) into frames (L, N, 576), each with the end of the frame before; zeros fill the last frame."""
    samples = pad(audio, (CONTEXT, -audio.shape[1] % FRAME))
    return samples.unfold(1, CONTEXT + FRAME, FRAME).transpose(0, 1)


def packaged(name: str) -> Path:
    """A data file of the installed package `silero-vad`.

    Raises:
        FileNotFoundError: the package is not installed, or lacks the file.
    """
    try:
        paths = [path for path in files("silero-vad") or () if path.name == name]
    except PackageNotFoundError:
        paths = []
    if not paths:
        raise FileNotFoundError(f"expected {name} of the package silero-vad; pip install --no-deps 'silero-vad==6.2.3'")
    return Path(str(paths[0].locate()))


def load() -> Vad:
    """The rebuilt model with the weights of the package's ONNX file, in eval mode."""
    graph = onnx.load(packaged("silero_vad_16k_op15.onnx")).graph
    theirs = {each.name.removeprefix("model."): torch.tensor(to_array(each)) for each in graph.initializer}
    convolutions = {
        f"encoder.{2 * k}.{name}": theirs[f"encoder.{k}.reparam_conv.{name}"] for k in range(4) for name in PARAMETERS
    }
    recurrent = {
        f"lstm.{name}_{part}_l0": theirs[f"decoder.rnn.{name}_{part}"] for name in PARAMETERS for part in ("ih", "hh")
    }
    head = {f"head.{name}": theirs[f"decoder.decoder.2.{name}"].reshape(1, -1) for name in PARAMETERS}
    head["head.bias"] = head["head.bias"][0]
    model = Vad()
    model.load_state_dict({"spectrum.weight": theirs["stft.forward_basis_buffer"]} | convolutions | recurrent | head)
    return model.eval()
