"""A run that is interrupted at any moment and resumed ends with the same weights, bit for bit."""

import json
import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from glassgate.cli import main
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import RunError
from glassgate.tasks.progress import Interrupted, Progress
from glassgate.tasks.runs import CHECKPOINT, METRICS, MODEL
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split
from tests.forked import forked
from tests.tasks.corpus import sentences, write_conllu

pytestmark = pytest.mark.usefixtures("kept_checkpoints")

EPOCHS = 3
SIZES = {
    "hidden_size": 8,
    "embedding_size": 8,
    "least_count": 1,
    "batch_size": 4,
    "epochs": EPOCHS,
    "save_every": 0.0,
    "threads": 1,
}
SPLIT = Split(sentences(40), sentences(10, seed=1), sentences(10, seed=2))
STEPS = 10  # batches of an epoch


class CtrlC(Progress):
    """Sends SIGINT after a number of steps, like Ctrl-C."""

    def __init__(self, after: int):
        self.left = after

    def step(self, units: int, loss: float) -> None:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)


def same_files(one: Path, other: Path, name: str) -> bool:
    """Whether the files of this name in both runs contain equal tensors."""
    first, second = load_file(one / name), load_file(other / name)
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def _uninterrupted(factory: pytest.TempPathFactory, **options: Any) -> Path:
    """Return a run without an interruption."""
    run = factory.mktemp("uninterrupted") / "run"
    Tagging(TaggingOptions.from_mapping(SIZES | options)).fit(SPLIT, run=run)
    return run


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with the usual options, without an interruption."""
    return _uninterrupted(tmp_path_factory)


@pytest.fixture(scope="module")
def regularised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with the options `REGULARISED`, without an interruption."""
    return _uninterrupted(tmp_path_factory, **REGULARISED)


REGULARISED: dict[str, Any] = {"dropout": 0.3, "accumulate": 3, "longest": 3, "patience": 1}
PRESSES = ([1], [7], [STEPS], [STEPS + 1], [2 * STEPS - 1], [EPOCHS * STEPS - 1], [4, 9])


def _interruptions() -> Iterator[Any]:
    """Yield each moment of Ctrl-C with both options. The mark `matrix` leaves one of the options for each moment."""
    for position, presses in enumerate(PRESSES):
        for number, name in enumerate(("regularised", "plain")):
            yield pytest.param(name, presses, marks=() if position % 2 == number else pytest.mark.matrix)


@pytest.mark.parametrize(("name", "presses"), [*_interruptions()])
def test_a_training_interrupted_by_ctrl_c_resumes_bit_for_bit(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, presses: list[int]
) -> None:
    options = TaggingOptions.from_mapping(SIZES | (REGULARISED if name == "regularised" else {}))
    whole: Path = request.getfixturevalue(name)
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        Tagging(options).fit(SPLIT, run=run, progress=CtrlC(presses[0]))
    for again in presses[1:]:
        with pytest.raises(Interrupted):
            Tagging.resume(run, SPLIT, progress=CtrlC(again))
    assert not (run / METRICS).exists()
    Tagging.resume(run, SPLIT)
    assert same_files(whole, run, MODEL)
    assert same_files(whole, run, CHECKPOINT)


def test_a_tagger_with_a_crf_resumes_bit_for_bit(tmp_path: Path) -> None:
    """The scores that forbid transitions are not parameters or stored weights, and a resumed run has them, too."""
    names = [Tagged(["mr", "ann", "lee", "?"], ["O", "B-PER", "I-PER", "O"], intent="ask")] * 20
    names += [Tagged(["to", "paris", "."], ["O", "B-LOC", "O"], intent="tell")] * 20
    split, options = Split(names, names[15:25]), TaggingOptions.from_mapping(SIZES | {"head": "crf"})
    Tagging(options).fit(split, run=tmp_path / "whole")
    with pytest.raises(Interrupted):
        Tagging(options).fit(split, run=tmp_path / "run", progress=CtrlC(7))
    task, _ = Tagging.resume(tmp_path / "run", split)
    assert task.network.requires_bio
    assert same_files(tmp_path / "whole", tmp_path / "run", MODEL)
    assert same_files(tmp_path / "whole", tmp_path / "run", CHECKPOINT)
    assert not [name for name in load_file(tmp_path / "run" / MODEL) if "penalties" in name]


def test_a_killed_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    data = write_conllu(tmp_path / "train.conllu", sentences(60))
    dev = write_conllu(tmp_path / "dev.conllu", sentences(10, seed=1))
    options = TaggingOptions.from_mapping(SIZES | {"data": str(data), "dev": str(dev)})
    Tagging(options).fit(run=tmp_path / "whole")
    (tmp_path / "config.yaml").write_text(options.to_yaml())
    words = ["train", "tagging", f"--config={tmp_path / 'config.yaml'}"]
    for checkpoints in (1, 3, 6):
        run = tmp_path / f"killed-{checkpoints}"
        process = forked().Process(target=main, args=([*words, f"--run={run}"],))
        process.start()
        written: set[int] = set()
        while len(written) < checkpoints:
            assert process.is_alive()
            if (run / CHECKPOINT).exists():
                written.add((run / CHECKPOINT).stat().st_mtime_ns)
            time.sleep(0.001)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not (run / METRICS).exists()
        Tagging.resume(run)
        assert same_files(tmp_path / "whole", run, MODEL)
        assert same_files(tmp_path / "whole", run, CHECKPOINT)


def test_a_training_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    options = TaggingOptions.from_mapping(SIZES)
    for name in ("whole", "killed"):
        Tagging(options).fit(SPLIT, run=tmp_path / name)
    for name in (CHECKPOINT, METRICS, MODEL):
        os.remove(tmp_path / "killed" / name)
    Tagging.resume(tmp_path / "killed", SPLIT)
    assert same_files(tmp_path / "whole", tmp_path / "killed", MODEL)


def test_a_training_killed_before_its_last_scores_resumes(tmp_path: Path) -> None:
    options = TaggingOptions.from_mapping(SIZES)
    result = Tagging(options).fit(SPLIT, run=tmp_path / "run")
    (tmp_path / "run" / METRICS).unlink()
    _, resumed = Tagging.resume(tmp_path / "run", SPLIT)
    assert resumed["test"] == result["test"]
    assert resumed["history"] == result["history"]


def test_part_of_a_checkpoint_is_never_read(tmp_path: Path) -> None:
    options = TaggingOptions.from_mapping(SIZES)
    Tagging(options).fit(SPLIT, run=tmp_path / "whole")
    with pytest.raises(Interrupted):
        Tagging(options).fit(SPLIT, run=tmp_path / "broken", progress=CtrlC(5))
    (tmp_path / "broken" / (CHECKPOINT + ".part")).write_bytes(b"half a checkp")
    Tagging.resume(tmp_path / "broken", SPLIT)
    assert same_files(tmp_path / "whole", tmp_path / "broken", MODEL)


def test_a_finished_run_cannot_be_resumed(tmp_path: Path) -> None:
    Tagging(TaggingOptions.from_mapping(SIZES | {"epochs": 1})).fit(SPLIT, run=tmp_path / "run")
    with pytest.raises(RunError, match=r"run: the run is finished and cannot be resumed; .* `glassgate predict"):
        Tagging.resume(tmp_path / "run", SPLIT)


def test_a_run_with_changed_data_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        Tagging(TaggingOptions.from_mapping(SIZES)).fit(SPLIT, run=tmp_path / "run", progress=CtrlC(2))
    changed = Split(SPLIT.train[1:], SPLIT.dev, SPLIT.test)
    with pytest.raises(RunError, match="run: the train data has changed since the run began; restore the file"):
        Tagging.resume(tmp_path / "run", changed)


def test_the_seed_determines_the_weights(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        Tagging(TaggingOptions.from_mapping(SIZES | {"epochs": 1, "seed": seed})).fit(SPLIT, run=tmp_path / name)
    assert same_files(tmp_path / "one", tmp_path / "again", MODEL)
    assert not same_files(tmp_path / "one", tmp_path / "two", MODEL)


FULL_AFTER = (1, 5, STEPS, STEPS + 3)


class FullDisk(Progress):
    """Limits the size of files to a few bytes after a number of steps."""

    def __init__(self, after: int, limits: tuple[int, int]):
        self.left, self.limits = after, limits

    def step(self, units: int, loss: float) -> None:
        self.left -= 1
        if not self.left:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, self.limits[1]))


def fill_the_disk(folder: Path) -> None:
    """Train until the disk is full, for each number of steps in `FULL_AFTER`, and write the messages to a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    torch.set_num_threads(1)
    said = {}
    for after in FULL_AFTER:
        try:
            Tagging(TaggingOptions.from_mapping(SIZES)).fit(
                SPLIT, run=folder / str(after), progress=FullDisk(after, limits)
            )
        except RunError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            said[after] = str(error)
    (folder / "said.json").write_text(json.dumps(said))


@pytest.fixture(scope="module")
def full_disks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, str]]:
    """Return runs whose disk became full after each number of steps, and their messages, from a separate process."""
    folder = tmp_path_factory.mktemp("full")
    process = forked().Process(target=fill_the_disk, args=(folder,))
    process.start()
    process.join()
    said = json.loads((folder / "said.json").read_text())
    return {after: (folder / str(after), said[str(after)]) for after in FULL_AFTER}


@pytest.mark.parametrize("after", FULL_AFTER)
def test_full_disk_leaves_the_last_good_checkpoint(
    full_disks: dict[int, tuple[Path, str]], plain: Path, after: int
) -> None:
    run, said = full_disks[after]
    assert re.search(rf"could not be written \(File too large\); .* resume with: .* --resume {run}$", said)
    assert not list(run.glob(".glassgate-*"))
    Tagging.resume(run, SPLIT)
    assert same_files(plain, run, MODEL)
    assert same_files(plain, run, CHECKPOINT)


@pytest.mark.parametrize("presses", [pytest.param(5, marks=pytest.mark.matrix), STEPS + 3])
def test_mixed_precision_resumes_too(tmp_path: Path, plain: Path, presses: int) -> None:
    mixed = TaggingOptions.from_mapping(SIZES | {"precision": "bf16-mixed"})
    Tagging(mixed).fit(SPLIT, run=tmp_path / "mixed")
    assert not same_files(tmp_path / "mixed", plain, MODEL)
    weights = load_file(tmp_path / "mixed" / MODEL)
    assert all(tensor.dtype == torch.float32 for tensor in weights.values())
    with pytest.raises(Interrupted):
        Tagging(mixed).fit(SPLIT, run=tmp_path / "broken", progress=CtrlC(presses))
    Tagging.resume(tmp_path / "broken", SPLIT)
    assert same_files(tmp_path / "mixed", tmp_path / "broken", MODEL)
    assert same_files(tmp_path / "mixed", tmp_path / "broken", CHECKPOINT)


def test_early_stopping_ends_after_so_many_epochs_without_a_better_score(tmp_path: Path) -> None:
    options = TaggingOptions.from_mapping(SIZES | {"epochs": 50, "patience": 2, "learning_rate": 0.05})
    result = Tagging(options).fit(SPLIT, run=tmp_path / "run")
    assert len(result["history"]) == result["best_epoch"] + 2 + 2 < 50  # two epochs of decay
    best, last = load_file(tmp_path / "run" / MODEL), load_file(tmp_path / "run" / CHECKPOINT)
    assert not all(torch.equal(tensor, last["model." + name]) for name, tensor in best.items())
