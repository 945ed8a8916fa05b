"""The processes that train together, as torchrun or srun has started them."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from glassgate.tasks.errors import OptionError

_PORTS = range(15000, 30000)  # below Linux's ephemeral ports


@dataclass(frozen=True)
class World:
    """The processes that train together, and the place of this one among them; a single one by default.

    Attributes:
        rank: this process's number, from 0; process 0 writes the files and shows the progress
        size: number of processes
        local_rank: this process's number on its machine
        local_size: number of processes on each machine
        by: the program that has started them, "torchrun" or "srun"
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    by: str = ""

    @property
    def nodes(self) -> int:
        """Number of machines."""
        return self.size // self.local_size

    def meeting_place(self, given: Mapping[str, str] = os.environ) -> tuple[str, int]:
        """Return the address of process 0's machine and a free port there: torchrun sets both, srun names the machines.

        Example:
            >>> World(by="srun").meeting_place({"SLURM_STEP_NODELIST": "gpu[07,11]", "SLURM_JOB_ID": "7"})
            ('gpu07', 15007)
        """
        address, port = given.get("MASTER_ADDR"), given.get("MASTER_PORT")
        machines = given.get("SLURM_STEP_NODELIST", "127.0.0.1")
        first = re.sub(r"\[(\w+)[^\]]*\]", r"\1", machines).split(",")[0]
        by_job = _PORTS[int(given.get("SLURM_JOB_ID", 0)) % len(_PORTS)]  # so that two jobs do not meet
        return address or first, int(port) if port else by_job


def here(given: Mapping[str, str] = os.environ) -> World:
    """Return the world that the variables of torchrun or SLURM describe.

    Raises:
        OptionError: a variable is missing, or machines have different numbers of processes

    Example:
        >>> here({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}).nodes
        2
    """
    if _number(given, "WORLD_SIZE", 1) > 1:
        rank, size = _number(given, "RANK"), _number(given, "WORLD_SIZE")
        world = World(rank, size, _number(given, "LOCAL_RANK"), _number(given, "LOCAL_WORLD_SIZE"), "torchrun")
    elif in_slurm_step(given):
        size, nodes = _number(given, "SLURM_NTASKS"), _number(given, "SLURM_STEP_NUM_NODES")
        if size % nodes:
            raise OptionError(
                f"SLURM: expected as many tasks on each machine, got {size} on {nodes}; see --ntasks-per-node"
            )
        world = World(_number(given, "SLURM_PROCID"), size, _number(given, "SLURM_LOCALID"), size // nodes, "srun")
    else:
        return World()
    if world.rank % world.local_size != world.local_rank or world.size % world.local_size:
        raise OptionError(
            f"expected processes numbered machine by machine, as many on each, got process {world.rank} of "
            f"{world.size} as number {world.local_rank} of {world.local_size} on its machine; with SLURM leave "
            "--distribution as it is, and give --ntasks-per-node"
        )
    return world


def in_slurm_step(given: Mapping[str, str] = os.environ) -> bool:
    """Whether srun has started this process with others; a batch script and a shell have one task."""
    return _number(given, "SLURM_STEP_NUM_TASKS", 1) > 1


def _number(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    if default is not None and not given.get(name):
        return default
    try:
        return int(given.get(name, ""))
    except ValueError:
        raise OptionError(
            f"{name}: expected a whole number in the environment, got {given.get(name)!r}; start with torchrun or "
            "srun, or unset WORLD_SIZE to train in one process"
        ) from None
