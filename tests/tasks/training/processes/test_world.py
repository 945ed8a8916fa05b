"""The environment determines which processes train together; contradictions are reported."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from glassgate.cli import main
from glassgate.tasks.errors import OptionError
from glassgate.tasks.tagging import TaggingOptions
from glassgate.tasks.training.devices import check_device, device_of
from glassgate.tasks.training.processes.world import World
from tests.forked import run_python
from tests.tasks.training.processes import crew

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
TORCHRUN |= {"MASTER_ADDR": "first", "MASTER_PORT": "29500"}


def test_torchrun_and_a_single_process() -> None:
    assert World.from_environment(TORCHRUN) == World(3, 4, 1, 2)
    for alone in ({}, TORCHRUN | {"WORLD_SIZE": "1"}, {"SLURM_NTASKS": "4", "SLURM_PROCID": "2"}):
        assert World.from_environment(alone) == World()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "LOCAL_RANK: expected a whole number in the environment, got None; start"),
        (TORCHRUN | {"RANK": "one"}, "RANK: expected a whole number in the environment, got 'one'"),
        (
            TORCHRUN | {"LOCAL_RANK": "0"},
            "expected the same number of processes on each machine, with consecutive ranks, but process 3 of 4 is",
        ),
        (TORCHRUN | {"WORLD_SIZE": "two"}, "WORLD_SIZE: expected a whole number in the environment, got 'two'"),
    ],
)
def test_an_environment_that_contradicts_itself(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        World.from_environment(given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 3}, "batch_size: expected 4 or more, a sequence for each process, got 3"),
        ({"data": "-"}, "data: several processes cannot share standard input; give a file"),
    ],
)
def test_options_that_cannot_be_shared(options: dict[str, Any], said: str) -> None:
    check_device(TaggingOptions(device="cpu", **options), World())
    with pytest.raises(OptionError, match=said):
        check_device(TaggingOptions(device="cpu", **options), World.from_environment(TORCHRUN))


def test_gpus_that_cannot_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    options, world = TaggingOptions(batch_size=8), World.from_environment(TORCHRUN)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device(options, world)
    assert device_of(options, world) == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        OptionError, match="devices: 2 processes of this machine need a GPU each, but the machine has 1; start"
    ):
        check_device(options, world)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(OptionError, match="device: Apple's GPU cannot be shared by several processes; add --device"):
        check_device(options, world)


def test_a_process_that_waits_in_vain_reports_the_address() -> None:
    assert crew.crew(1, crew.wait_in_vain) == [0]


def test_errors_of_the_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        main(["train", "tagging", "--devices", "0"])
    assert "expected 1 or more, got 0" in capsys.readouterr().err
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "tagging", "--devices", "4"]) == 2
    assert "devices: expected 2, as torchrun has started, got 4; leave --devices out" in capsys.readouterr().err


WORKER = """\
import os, signal, sys, time
rank = int(os.environ["RANK"])
if sys.argv[-1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else time.sleep(60)
if sys.argv[-1] == "fail":
    sys.exit(2) if rank == 1 else time.sleep(60)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if rank == 0:
    os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
"""


SUPERVISOR = """
import sys
from glassgate.cli import train
train._entry_point = lambda: ["--", sys.argv[1]]
sys.exit(train.start_processes([sys.argv[2]], 3))
"""


@pytest.mark.parametrize(
    ("word", "status"), [("kill", 128 + signal.SIGKILL), ("stop", 128 + signal.SIGTERM), ("fail", 2)]
)
def test_workers_end_together(word: str, status: int, tmp_path: Path) -> None:
    """A killed process is reported by its number. A signal reaches all processes."""
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    done = subprocess.run([sys.executable, "-c", SUPERVISOR, worker, word], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    message = "process 1 of 3 was ended by SIGKILL, probably because memory was full" if word == "kill" else ""
    assert message in done.stderr


def test_standard_input_is_not_shared(tmp_path: Path) -> None:
    """`--devices 2 --data -` names the remedy, once."""
    words = ["train", "tagging", "--devices", "2", "--data", "-", "--run", str(tmp_path / "run")]
    done = run_python("-m", "glassgate", *words)
    assert done.returncode == 2
    assert done.stderr.count("data: several processes cannot share standard input; give a file") == 1
