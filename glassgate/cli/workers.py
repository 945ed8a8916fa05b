"""Starts several processes of `glassgate train` on one machine with torchrun."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from glassgate.system import SYSTEM


def run(argv: Sequence[str], devices: int) -> int:
    """Start the processes, wait for them, and return the exit status.

    Args:
        argv: the arguments after `glassgate train`
        devices: the number of processes
    """
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # More threads than processors would make training many times slower.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, SYSTEM.processor_counter()() // devices)))
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # errors are reported below
    words = ["--standalone", f"--nproc-per-node={devices}", *_entry_point(), "train", *argv]
    try:
        torchrun.run(torchrun.parse_args(words))
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
    """The arguments of torchrun that start glassgate in the same way as this process."""
    script = Path(sys.argv[0])
    as_file = script.name == "glassgate" and script.is_file()
    return ["--", str(script)] if as_file else ["-m", "--", "glassgate"]
