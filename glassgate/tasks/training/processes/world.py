"""Reads the environment variables with which torchrun or srun starts the processes of a training run."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from glassgate.tasks.errors import OptionError

_PORTS = range(15000, 30000)  # below Linux's ephemeral ports


@dataclass(frozen=True)
class World:
    """The number of processes and the rank of this one; a single process by default.

    Attributes:
        rank: the rank of this process; process 0 writes files and shows the progress
        size: the number of processes
        local_rank: the rank of this process on its machine
        local_size: the number of processes on each machine
        launcher: the program that has started the processes, "torchrun" or "srun"; empty for a single process
        own_gpus: whether SLURM may show each process only its own GPUs (--gpus-per-task)
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    launcher: str = ""
    own_gpus: bool = False

    @property
    def nodes(self) -> int:
        """Number of machines."""
        return self.size // self.local_size

    def rendezvous(self, env: Mapping[str, str] = os.environ) -> tuple[str, int]:
        """Return the address of process 0 and a port for it. torchrun sets both; srun sets the names of the machines.

        Example:
            >>> World(launcher="srun").rendezvous({"SLURM_STEP_NODELIST": "gpu[07,11]", "SLURM_JOB_ID": "7"})
            ('gpu07', 15007)
        """
        address, port = env.get("MASTER_ADDR"), env.get("MASTER_PORT")
        machines = env.get("SLURM_STEP_NODELIST", "127.0.0.1")
        first_machine = re.sub(r"\[(\w+)[^\]]*\]", r"\1", machines).split(",")[0]
        port_of_job = _PORTS[int(env.get("SLURM_JOB_ID", 0)) % len(_PORTS)]  # different ports for different jobs
        return address or first_machine, int(port) if port else port_of_job


def from_environment(env: Mapping[str, str] = os.environ) -> World:
    """Return the world that the variables of torchrun or SLURM describe.

    Raises:
        OptionError: a variable is missing, or machines have different numbers of processes

    Example:
        >>> from_environment({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}).nodes
        2
    """
    if _number(env, "WORLD_SIZE", 1) > 1:
        rank, size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
        world = World(rank, size, _number(env, "LOCAL_RANK"), _number(env, "LOCAL_WORLD_SIZE"), "torchrun")
    elif srun_started_several(env):
        size, nodes = _number(env, "SLURM_NTASKS"), _number(env, "SLURM_STEP_NUM_NODES")
        if size % nodes:
            raise OptionError(
                f"SLURM: expected the same number of tasks on each machine, got {size} tasks on {nodes} machines; "
                "see --ntasks-per-node"
            )
        rank, own_gpus = _number(env, "SLURM_PROCID"), bool(env.get("SLURM_GPUS_PER_TASK"))
        world = World(rank, size, _number(env, "SLURM_LOCALID"), size // nodes, "srun", own_gpus)
    else:
        return World()
    if world.rank % world.local_size != world.local_rank or world.size % world.local_size:
        raise OptionError(
            "expected the same number of processes on each machine, with consecutive ranks, but process "
            f"{world.rank} of {world.size} is number {world.local_rank} of {world.local_size} on its machine; with "
            "SLURM leave --distribution as it is, and give --ntasks-per-node"
        )
    return world


def srun_started_several(env: Mapping[str, str] = os.environ) -> bool:
    """Whether srun has started several processes. In a batch script or a shell, the SLURM step has one task."""
    return _number(env, "SLURM_STEP_NUM_TASKS", 1) > 1


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    if default is not None and not env.get(name):
        return default
    try:
        return int(env.get(name, ""))
    except ValueError:
        raise OptionError(
            f"{name}: expected a whole number in the environment, got {env.get(name)!r}; start with torchrun or "
            "srun, or unset WORLD_SIZE to train in one process"
        ) from None
