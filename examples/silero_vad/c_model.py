"""Writes Silero VAD as C by two calls of `gg.to_c`. The program vad.c calls the two emitted steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vad import Vad

import glassgate as gg

SPECTRA, BINS = 4, 129


class Magnitude(gg.Cell):
    """A cell without recurrence that computes the magnitude of re + i im."""

    gates = ("re", "im")
    state = ("h",)
    recurrent = False

    def step(self, a: Any, s: Any) -> Any:
        return torch.sqrt(a.re * a.re + a.im * a.im)


def write(model: Vad, folder: Path) -> None:
    """Write spectrum.c, whose step reads 256 samples, and speech.c, whose step reads the four spectra of a frame."""
    spectrum = gg.Recurrent(Magnitude(), 256, BINS, bias=False)
    with torch.no_grad():
        spectrum.weight_ih_l0.copy_(model.spectrum.weight[:, 0])
        shape, modules = (BINS, SPECTRA), []
        for module in model.encoder:
            if isinstance(module, nn.ReLU):
                modules.append(module)
                continue
            linear, shape = as_linear(module, shape)
            modules.append(linear)
    gg.to_c(spectrum, folder, name="spectrum")
    gg.to_c(nn.Sequential(*modules, model.lstm, nn.ReLU(), model.head, nn.Sigmoid()), folder, name="speech")


def as_linear(function: Callable[[Tensor], Tensor], shape: tuple[int, int]) -> tuple[nn.Linear, tuple[int, int]]:
    """Convert a convolution of a fixed shape (channels, steps) to a linear layer of (steps * channels,) numbers.

    Returns:
        the linear layer, and the shape (channels, steps) of the output of the convolution.
    """
    channels, steps = shape
    unit_vectors = torch.eye(steps * channels).view(-1, steps, channels).transpose(1, 2)
    bias = function(torch.zeros(1, *shape))
    columns = (function(unit_vectors) - bias).transpose(1, 2)
    linear = nn.Linear(steps * channels, columns[0].numel())
    linear.weight.copy_(columns.flatten(1).T)
    linear.bias.copy_(bias.transpose(1, 2).flatten())
    return linear, (columns.shape[2], columns.shape[1])
