"""Who trains with whom is read off the environment, and what makes no sense there is said."""

import os
import signal
import sys
from datetime import timedelta
from typing import Any

import pytest
import torch

from glassgate.cli import main, workers
from glassgate.tasks.errors import OptionError, UserError
from glassgate.tasks.tagging import TaggingOptions
from glassgate.tasks.training.devices import check_device
from glassgate.tasks.training.processes import group
from glassgate.tasks.training.processes.world import World, check_asked, here, place_of, variables

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
TORCHRUN |= {"MASTER_ADDR": "first", "MASTER_PORT": "29500"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "0"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2"}
STEP |= {"SLURM_STEP_NODELIST": "gpu[07,11]"}


def test_torchrun_srun_and_nobody() -> None:
    assert here(TORCHRUN) == World(3, 4, 1, 2, "first", 29500, "torchrun")
    assert here(SLURM | STEP) == World(2, 4, 0, 2, "gpu07", 15112, "srun")
    assert here(SLURM | STEP | {"MASTER_ADDR": "x", "MASTER_PORT": "1"}).address == "x"
    assert here(variables(1, 2, 1, 2, "127.0.0.1", 5)) == World(1, 2, 1, 2, "127.0.0.1", 5, "--devices")
    for alone in ({}, TORCHRUN | {"WORLD_SIZE": "1"}, SLURM, SLURM | STEP | {"SLURM_STEP_NUM_TASKS": "1"}):
        assert here(alone) == World()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"RANK": "0", "WORLD_SIZE": "2"},
            "WORLD_SIZE is 2, and LOCAL_RANK, MASTER_ADDR, MASTER_PORT .*not set beside it; start with torchrun",
        ),
        (TORCHRUN | {"RANK": "one"}, "RANK: expected a whole number in the environment, got 'one'"),
        (
            TORCHRUN | {"LOCAL_RANK": "0"},
            "expected processes numbered machine by machine, as many on each, got process 3 of 4 as",
        ),
        (SLURM | STEP | {"SLURM_STEP_NUM_TASKS": "3"}, "SLURM: expected as many tasks on each machine, got 3 on 2"),
    ],
)
def test_an_environment_that_contradicts_itself(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        here(given)


def test_several_machines_must_know_where_they_meet() -> None:
    meeting = {"MASTER_ADDR": "first", "MASTER_PORT": "29500", "NODE_RANK": "1"}
    assert place_of(4, 2, meeting) == ("first", 29500, 1)
    assert place_of(4, 1, {}) == ("127.0.0.1", None, 0)
    with pytest.raises(OptionError, match="nodes: 2 machines need to find each other, and MASTER_PORT, NODE_RANK not"):
        place_of(4, 2, {"MASTER_ADDR": "first"})
    with pytest.raises(OptionError, match="nodes: NODE_RANK must be 0 to 1 for 2 machines, got 2"):
        place_of(4, 2, meeting | {"NODE_RANK": "2"})
    with pytest.raises(OptionError, match="several tasks, which srun starts: write `srun glassgate train"):
        place_of(4, 1, SLURM)


def test_options_that_contradict_what_has_been_started() -> None:
    world = here(TORCHRUN)
    check_asked(world, 2, 2)
    with pytest.raises(
        OptionError, match="devices: 4 asked for, and torchrun has started 2; leave --devices and --nodes out"
    ):
        check_asked(world, 4, None)
    with pytest.raises(OptionError, match="nodes: 1 asked for, and torchrun has started 2"):
        check_asked(world, None, 1)


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
        check_device(TaggingOptions(device="cpu", **options), here(TORCHRUN))


def test_gpus_that_cannot_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    options, world = TaggingOptions(batch_size=8), here(TORCHRUN)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(OptionError, match="devices: 2 processes of this machine need a GPU each, and it has 1; start"):
        check_device(options, world)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(OptionError, match="device: Apple's GPU cannot be shared by several processes; add --device"):
        check_device(options, world)


def test_who_waits_for_others_in_vain_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_MEET", timedelta(seconds=1))
    alone = group.Group(World(0, 2, 0, 2, "127.0.0.1", workers._free_port(), "torchrun"))
    with pytest.raises(UserError, match=r"the 2 processes did not meet at 127.0.0.1:.* minutes; see that all were st"):
        alone._meet()


def test_the_command_line_says_so_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert main(["train", "tagging", "--devices", "2", "--nodes", "2"]) == 2
    assert "glassgate train: nodes: 2 machines need to find each other" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "tagging", "--devices", "0"])
    assert "expected 1 or more, got 0" in capsys.readouterr().err


WORKER = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
if sys.argv[-1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else time.sleep(60)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if rank == 0:
    os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
"""


@pytest.mark.parametrize(("word", "status"), [("kill", 128 + signal.SIGKILL), ("stop", 128 + signal.SIGTERM)])
def test_workers_end_together(
    word: str, status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A killed one is named, and the others get little time; a signal reaches all."""
    monkeypatch.setattr(workers, "_program", lambda: [sys.executable, "-c", WORKER])
    monkeypatch.setattr(workers, "_LAST_WORDS", 0.5)
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    assert workers.run([word], 3, 1) == status
    said = "process 1 of 3 was ended by SIGKILL, as the system does where memory is full" if word == "kill" else ""
    assert said in capfd.readouterr().err
