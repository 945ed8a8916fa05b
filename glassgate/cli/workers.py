"""Starts several processes of `glassgate train` on one machine with torchrun."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from glassgate.system import SYSTEM
from glassgate.tasks.errors import OptionError
from glassgate.tasks.training.processes.world import srun_started_several


def run(argv: Sequence[str], devices: int) -> int:
    """Start the processes, wait for them, and return the exit status.

    Args:
        argv: the arguments after `glassgate train`
        devices: the number of processes

    Raises:
        OptionError: the command is in a SLURM job with several tasks, which srun must start
    """
    if int(os.environ.get("SLURM_NTASKS") or 1) > 1 and not srun_started_several():
        raise OptionError(
            "devices: this SLURM job has several tasks, which srun starts: write `srun glassgate train ...`, without "
            "--devices"
        )
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # More threads than processors would make training many times slower.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, SYSTEM.processors() // devices)))
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # errors are reported below
    config = LaunchConfig(
        1, 1, devices, run_id="glassgate", rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0
    )
    try:
        elastic_launch(config, sys.executable)(*_entry_point(), "train", *argv)
    except SignalException as error:
        return 128 + error.sigval
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode > 0:
            return int(failure.exitcode)
        print(
            f"glassgate train: process {rank} of {devices} was ended by {SYSTEM.describe_end(-failure.exitcode)}; "
            "resume with: glassgate train --resume RUN",
            file=sys.stderr,
        )
        return int(128 - failure.exitcode)
    return 0


def _entry_point() -> list[str]:
    """The arguments of Python that start glassgate in the same way as this process."""
    script = Path(sys.argv[0])
    as_file = script.name == "glassgate" and script.is_file()
    return [str(script)] if as_file else ["-m", "glassgate"]
