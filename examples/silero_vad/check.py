"""Compares the rebuilt Silero VAD with the model of the package on minutes of speech and noise, and measures times.

    python examples/silero_vad/check.py [--minutes 3] [--folder build]

The program needs `pip install --no-deps silero-vad`, glassgate[export], espeak-ng, sox and gcc. It writes vad.onnx, the
C files and the sound to the folder.
"""

import argparse
import ctypes
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import c_model
import numpy as np
import onnxruntime
import torch
import vad
from torch import Tensor

import glassgate as gg

SENTENCES = (
    "The equations are written once, and everything else is derived from them.",
    "A gate that stays open forgets nothing; a gate that stays shut learns nothing.",
    "Twenty-one sailors read the weather report before sunrise.",
)
VOICES = ("en-us", "de", "es", "fr", "ru", "zh")
NOISES = ("whitenoise", "pinknoise", "brownnoise")
FLAGS = ("-O3", "-march=native", "-ffast-math", "-std=gnu99", "-shared", "-fPIC")


def generate_sound(folder: Path, minutes: float) -> np.ndarray:
    """Generate speech of several voices and speeds, with pauses and noise of three kinds with decreasing volume."""
    parts: list[str] = []
    for k in range(int(np.ceil(minutes * 60 / 5))):  # a sentence takes about five seconds
        path = folder / f"{k}.wav"
        voice, speed = VOICES[k % len(VOICES)], 120 + 15 * (k % 6)
        subprocess.run(
            ["espeak-ng", "-v", voice, "-s", str(speed), "-w", path, SENTENCES[k % len(SENTENCES)]], check=True
        )
        quiet = folder / f"{k}-16k.wav"
        subprocess.run(["sox", path, "-r", str(vad.RATE), "-c", "1", quiet, "pad", "0.3", "0.7"], check=True)
        parts.append(str(quiet))
    clean, noisy = folder / "clean.wav", folder / "noisy.wav"
    subprocess.run(["sox", *parts, clean], check=True)
    seconds = float(subprocess.check_output(["soxi", "-D", clean]))
    kinds = []
    for k, noise in enumerate(NOISES):
        path = folder / f"{noise}.wav"
        command = ["sox", "-R", "-n", "-r", str(vad.RATE), "-c", "1", path, "synth", str(seconds / 3), noise]
        subprocess.run([*command, "vol", str(0.2 / 4**k)], check=True)
        kinds.append(str(path))
    subprocess.run(["sox", *kinds, folder / "noise.wav"], check=True)
    subprocess.run(["sox", "-R", "-m", clean, folder / "noise.wav", noisy], check=True)
    raw = subprocess.check_output(["sox", noisy, "-t", "f32", "-"])
    return np.frombuffer(raw, np.float32)


def package_model(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that runs a file of the package in ONNX Runtime, frame by frame."""
    session = open_session(vad.package_file(name))
    rate = np.array(vad.RATE)

    def run(frames: np.ndarray) -> np.ndarray:
        state, probabilities = np.zeros((2, 1, 128), np.float32), []
        for frame in frames:
            probability, state = session.run(None, {"input": frame, "state": state, "sr": rate})
            probabilities.append(probability[0, 0])
        return np.array(probabilities)

    return run


def onnx_model(model: vad.Vad, path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Export the rebuilt model. Returns a function that runs it in ONNX Runtime, frame by frame."""
    state = torch.zeros(2, 1, 2, 128)
    gg.to_onnx(
        model,
        path,
        (torch.randn(3, 2, 576), *state),
        dynamic_shapes=({0: "L", 1: "N"}, {1: "N"}, {1: "N"}),
        input_names=["frames", "h_0", "c_0"],
        output_names=["probability", "h_n", "c_n"],
        verify=[(torch.randn(1, 1, 576), *state[:, :, :1])],
    )
    session = open_session(path)

    def run(frames: np.ndarray) -> np.ndarray:
        h, c = np.zeros((2, 1, 1, 128), np.float32)
        probabilities = []
        for frame in frames:
            probability, h, c = session.run(None, {"frames": frame[None], "h_0": h, "c_0": c})
            probabilities.append(probability[0, 0])
        return np.array(probabilities)

    return run


def compile_c_model(model: vad.Vad, folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Compile the rebuilt model as C. Returns a function that runs it frame by frame."""
    c_model.write(model, folder)
    sources = [Path(__file__).with_name("vad.c"), folder / "spectrum.c", folder / "speech.c"]
    subprocess.run(["gcc", *FLAGS, *sources, "-I", folder, "-o", folder / "vad.so", "-lm"], check=True)
    library = ctypes.CDLL(str(folder / "vad.so"))
    library.vad_size.restype, library.vad_step.restype = ctypes.c_size_t, ctypes.c_float
    library.vad_step.argtypes, library.vad_init.argtypes = [ctypes.c_void_p] * 2, [ctypes.c_void_p]
    memory = (ctypes.c_char * (library.vad_size() + 63))()
    state = -(-ctypes.addressof(memory) // 64) * 64

    def run(frames: np.ndarray) -> np.ndarray:
        frames = np.ascontiguousarray(frames)
        library.vad_init(state)
        probabilities = [library.vad_step(state, frame.ctypes.data) for frame in frames]
        assert len(memory)  # keeps the memory alive during the calls
        return np.array(probabilities)

    return run


@torch.inference_mode()
def run_all_frames(model: vad.Vad, frames: Tensor) -> np.ndarray:
    """Run the rebuilt model in Python with all frames in one call."""
    probabilities: np.ndarray = model(frames, *torch.zeros(2, 1, 1, 128))[0][:, 0].numpy()
    return probabilities


def open_session(path: Path) -> onnxruntime.InferenceSession:
    """Open a model in ONNX Runtime on one thread, as the package does."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main() -> None:
    """Print the largest difference and the processor time of a frame for each program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--folder", type=Path, default=Path("build"))
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    model = vad.load()
    frames = vad.to_frames(torch.tensor(generate_sound(folder, arguments.minutes))[None])
    programs = {
        "package's silero_vad.onnx": package_model("silero_vad.onnx"),
        "package's silero_vad_16k_op15.onnx": package_model("silero_vad_16k_op15.onnx"),
        "rebuilt, exported to ONNX": onnx_model(model, folder / "vad.onnx"),
        "rebuilt, exported to C": compile_c_model(model, folder),
        "rebuilt, all frames at once": lambda _: run_all_frames(model, frames),
    }
    inputs = frames.numpy()
    outputs = {name: run(inputs) for name, run in programs.items()}
    truth = next(iter(outputs.values()))
    minutes = len(frames) * vad.FRAME / vad.RATE / 60
    print(f"{len(frames)} frames, {minutes:.1f} minutes, speech in {np.mean(truth > 0.5):.0%}")
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(7):  # interleaved, so that all programs see the same load
        for name, run in programs.items():
            before = time.process_time()
            run(inputs)
            times[name].append((time.process_time() - before) / len(frames) * 1e6)
    for name, values in outputs.items():
        print(f"{name}: {np.median(times[name]):.1f} us per frame, difference {np.abs(values - truth).max():.2g}")


if __name__ == "__main__":
    main()
