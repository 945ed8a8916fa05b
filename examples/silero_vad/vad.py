"""Silero VAD (voice activity detection), rebuilt with a glassgate layer from the weights of the package `silero-vad`.

The weights are read from the ONNX file of the package. None of its code is imported, and no file is unpickled.
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
"""The sample rate in Hz."""
FRAME, CONTEXT = 512, 64
"""The number of samples of a frame, and the number of samples before it that the network also reads."""

PARAMETERS = "weight", "bias"


class Vad(nn.Module):
    """Computes the probability of speech in each frame of 32 ms.

    A convolution with sines and cosines computes four spectra of a frame. Four further convolutions reduce them to the
    input of one step of an LSTM. A linear layer maps the output of the LSTM to the probability.
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
        """Compute the probabilities of frames.

        Args:
            frames: (L, N, 576), L frames of N streams; see `to_frames`.
            h, c: (1, N, 128), the states; zero at the beginning.

        Returns:
            the probabilities (L, N), and the new states.
        """
        samples = pad(frames.flatten(0, 1), (0, CONTEXT), "reflect")
        real, imaginary = self.spectrum(samples[:, None]).chunk(2, 1)
        features = self.encoder((real**2 + imaginary**2).sqrt())[..., 0]
        output, (h, c) = self.lstm(features.unflatten(0, frames.shape[:2]), (h, c))
        return self.head(output.relu()).sigmoid()[..., 0], h, c


def to_frames(audio: Tensor) -> Tensor:
    """Divide streams (N, S) into frames (L, N, 576), each with the end of the previous frame. Zeros fill the last."""
    samples = pad(audio, (CONTEXT, -audio.shape[1] % FRAME))
    return samples.unfold(1, CONTEXT + FRAME, FRAME).transpose(0, 1)


def package_file(name: str) -> Path:
    """Return the path of a data file of the installed package `silero-vad`.

    Raises:
        FileNotFoundError: the package is not installed, or does not contain the file.
    """
    try:
        paths = [path for path in files("silero-vad") or () if path.name == name]
    except PackageNotFoundError:
        paths = []
    if not paths:
        raise FileNotFoundError(f"expected {name} of the package silero-vad; pip install --no-deps 'silero-vad==6.2.3'")
    return Path(str(paths[0].locate()))


def load() -> Vad:
    """Return the rebuilt model in eval mode, with the weights of the ONNX file of the package."""
    graph = onnx.load(package_file("silero_vad_16k_op15.onnx")).graph
    weights = {w.name.removeprefix("model."): torch.tensor(to_array(w)) for w in graph.initializer}
    convolutions = {
        f"encoder.{2 * k}.{name}": weights[f"encoder.{k}.reparam_conv.{name}"] for k in range(4) for name in PARAMETERS
    }
    recurrent = {
        f"lstm.{name}_{part}_l0": weights[f"decoder.rnn.{name}_{part}"] for name in PARAMETERS for part in ("ih", "hh")
    }
    head = {f"head.{name}": weights[f"decoder.decoder.2.{name}"].reshape(1, -1) for name in PARAMETERS}
    head["head.bias"] = head["head.bias"][0]
    model = Vad()
    model.load_state_dict({"spectrum.weight": weights["stft.forward_basis_buffer"]} | convolutions | recurrent | head)
    return model.eval()
