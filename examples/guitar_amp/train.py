"""Trains an LSTM on a synthetic guitar amplifier, and writes it as C for `amp.c`, a program that processes wav files.

python train.py --output build
cc -std=gnu99 -O3 -march=native -ffast-math -I build amp.c build/net.c -lm -o build/amp
build/amp build/guitar.wav build/amplified.wav
"""

import argparse
import wave
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import glassgate as gg

RATE = 48_000
WARM_UP = 256
"""The number of samples that the error ignores at the start of each excerpt, because states start from zero."""


def guitar(seconds: float, seed: int) -> np.ndarray:
    """Generate plucked strings, two notes per second, (samples,), between -1 and 1."""
    random = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    sound = np.zeros_like(t)
    for start in np.arange(0, seconds, 0.5):
        pitch, loudness = 82.4 * 2 ** (random.integers(0, 36) / 12), random.uniform(0.1, 1)
        elapsed = np.maximum(t - start, 0)
        for harmonic in range(1, 9):
            decay = np.exp(-elapsed * (2 + harmonic)) * (t >= start)
            sound += loudness / harmonic * decay * np.sin(2 * np.pi * harmonic * pitch * elapsed)
    return (sound / np.abs(sound).max()).astype(np.float32)


def amplify(dry: np.ndarray) -> np.ndarray:
    """Apply the amplifier, which clips asymmetrically and then filters high frequencies."""
    driven = np.tanh(8 * dry + 0.3) - np.tanh(0.3)
    response = np.exp(-2 * np.pi * 4000 / RATE * np.arange(64))
    wet: np.ndarray = np.convolve(driven, response / response.sum())[: len(dry)]
    return (0.6 * wet).astype(np.float32)


def error(output: Tensor, expected: Tensor) -> Tensor:
    """Compute the energy of the error as a fraction of the energy of the signal."""
    output, expected = output[:, WARM_UP:], expected[:, WARM_UP:]
    return ((output - expected) ** 2).mean() / (expected**2).mean()


def excerpts(seconds: float, seed: int, length: int) -> tuple[Tensor, Tensor]:
    """Generate excerpts of sound before and after the amplifier, (N, length, 1) each."""
    dry = guitar(seconds, seed)
    count = len(dry) // length
    before, after = (torch.from_numpy(sound[: count * length]) for sound in (dry, amplify(dry)))
    return before.view(count, length, 1), after.view(count, length, 1)


def train(hidden_size: int, steps: int, seconds: float) -> tuple[gg.LSTM, nn.Linear, float]:
    """Train the layers. Returns the layers and their error on another recording."""
    torch.manual_seed(0)
    layer, head = gg.LSTM(1, hidden_size, batch_first=True), nn.Linear(hidden_size, 1)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    dry, wet = excerpts(seconds, 0, 2048)
    for step in range(steps):
        rows = torch.randint(len(dry), (16,))
        loss = error(head(layer(dry[rows])[0]), wet[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step:4d}  error {loss.item():.4f}")
    with torch.no_grad():
        dry, wet = excerpts(seconds / 4, 1, 2048)
        return layer, head, error(head(layer(dry)[0]), wet).item()


def write_wav(path: Path, sound: np.ndarray) -> None:
    """Write a sound with 16 bits per sample."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((32767 * sound).astype("<i2").tobytes())


def main(words: list[str] | None = None) -> nn.Sequential:
    """Train the network, and write it as C, together with a recording for the program."""
    parser = argparse.ArgumentParser(description="Train an LSTM on a synthetic guitar amplifier and write it as C.")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder for the files (default: build)")
    parser.add_argument("--hidden-size", type=int, default=16, help="units of the LSTM (default: 16)")
    parser.add_argument("--steps", type=int, default=400, help="training steps (default: 400)")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of the recording to train on (default: 20)")
    options = parser.parse_args(words)
    layer, head, test_error = train(options.hidden_size, options.steps, options.seconds)
    print(f"error on another recording: {test_error:.4f} of the energy of the signal")
    network = nn.Sequential(layer, head)
    print(*gg.to_c(network, options.output, "net"), sep="\n")
    write_wav(options.output / "guitar.wav", guitar(options.seconds / 4, 2))
    return network


if __name__ == "__main__":
    main()
