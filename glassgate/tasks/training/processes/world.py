"""The processes that train together, as `glassgate train --devices`, torchrun or SLURM have started them."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glassgate.tasks.errors import OptionError

STARTED_BY = "GLASSGATE_STARTED_BY"  # the number of the process that has started this one to train with others

_PORTS = range(15000, 30000)  # below the range from which Linux assigns ports


@dataclass(frozen=True)
class World:
    """The processes that train together, and which of them this one is; alone by default.

    Attributes:
        rank: this process's number, from 0; process 0 writes the files and shows the progress
        size: how many there are
        local_rank: its number on its machine
        local_size: how many there are on each machine
        address: of the machine of process 0
        port: where process 0 listens there
        by: what has started them
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = ""
    port: int = 0
    by: str = ""

    @property
    def nodes(self) -> int:
        """How many machines there are."""
        return self.size // self.local_size

    @property
    def node(self) -> int:
        """The number of this process's machine."""
        return self.rank // self.local_size


def here(environment: Mapping[str, str] = os.environ) -> World:
    """Return the world that the environment describes in torchrun's words or in SLURM's.

    Raises:
        OptionError: the description lacks something, or machines have different numbers of processes

    Example:
        >>> here({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
        ...       "MASTER_ADDR": "first", "MASTER_PORT": "29500"}).node
        1
    """
    given = {name: value for name, value in environment.items() if value}
    if "WORLD_SIZE" in given and "RANK" in given:
        return _checked(_of_torchrun(given))
    if _of_a_step(given):
        return _checked(_of_slurm(given))
    return World()


def check_asked(world: World, devices: int | None, nodes: int | None) -> None:
    """See that the processes that others have started are as many as were asked for.

    Raises:
        OptionError: they are not
    """
    for option, asked, there in (("devices", devices, world.local_size), ("nodes", nodes, world.nodes)):
        if world.size > 1 and asked not in (None, there):
            raise OptionError(
                f"{option}: {asked} asked for, and {world.by} has started {there}; leave --devices and --nodes out, "
                f"{world.by} says it all"
            )


def place_of(devices: int, nodes: int, environment: Mapping[str, str] = os.environ) -> tuple[str, int | None, int]:
    """Return where process 0 is to be found, address and port, None for any free one, and this machine's number.

    Raises:
        OptionError: of several machines, where no variable says it; inside a SLURM job, where srun is to start them
    """
    if int(environment.get("SLURM_NTASKS") or 1) > 1 and not _of_a_step(environment):
        raise OptionError(
            "devices: this SLURM job has several tasks, which srun starts: write `srun glassgate train ...`, without "
            "--devices and --nodes"
        )
    if nodes == 1:
        return "127.0.0.1", None, 0
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if not environment.get(name)]
    if missing:
        raise OptionError(
            f"nodes: {nodes} machines need to find each other, and {', '.join(missing)} not set; start on each with "
            f"torchrun, or with srun, or set MASTER_ADDR and MASTER_PORT to a place on the first one and NODE_RANK to "
            f"0 there, to 1 on the next"
        )
    rank = _number(environment, "NODE_RANK")
    if rank >= nodes:
        raise OptionError(f"nodes: NODE_RANK must be 0 to {nodes - 1} for {nodes} machines, got {rank}")
    return environment["MASTER_ADDR"], _number(environment, "MASTER_PORT"), rank


def variables(rank: int, size: int, local_rank: int, local_size: int, address: str, port: int) -> dict[str, str]:
    """Return what `here` reads, in torchrun's words."""
    numbers: dict[str, Any] = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank}
    numbers |= {"LOCAL_WORLD_SIZE": local_size, "MASTER_ADDR": address, "MASTER_PORT": port, STARTED_BY: os.getpid()}
    return {name: str(value) for name, value in numbers.items()}


def _of_torchrun(given: Mapping[str, str]) -> World:
    size = _number(given, "WORLD_SIZE")
    if size == 1:
        return World()
    missing = [name for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in given]
    if missing:
        raise OptionError(
            f"WORLD_SIZE is {size}, and {', '.join(missing)} not set beside it; start with torchrun, which sets all, "
            "or unset WORLD_SIZE to train in one process"
        )
    return World(
        rank=_number(given, "RANK"),
        size=size,
        local_rank=_number(given, "LOCAL_RANK"),
        local_size=_number(given, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in given else size,
        address=given["MASTER_ADDR"],
        port=_number(given, "MASTER_PORT"),
        by="--devices" if STARTED_BY in given else "torchrun",
    )


def _of_a_step(given: Mapping[str, str]) -> bool:
    """Whether srun has started this process with others: a batch script itself has no step, and a shell one task."""
    return int(given.get("SLURM_STEP_NUM_TASKS") or 1) > 1


def _of_slurm(given: Mapping[str, str]) -> World:
    size, nodes = _number(given, "SLURM_STEP_NUM_TASKS"), _number(given, "SLURM_STEP_NUM_NODES")
    job = 16 * _number(given, "SLURM_JOB_ID") + _number(given, "SLURM_STEP_ID")  # so that each has a port of its own
    if size % nodes:
        raise OptionError(f"SLURM: expected as many tasks on each machine, got {size} on {nodes}; --ntasks-per-node")
    return World(
        rank=_number(given, "SLURM_PROCID"),
        size=size,
        local_rank=_number(given, "SLURM_LOCALID"),
        local_size=size // nodes,
        address=given.get("MASTER_ADDR") or _first(given.get("SLURM_STEP_NODELIST", "127.0.0.1")),
        port=_number(given, "MASTER_PORT") if "MASTER_PORT" in given else _PORTS[job % len(_PORTS)],
        by="srun",
    )


def _checked(world: World) -> World:
    if world.size == 1:
        return World()
    fits = 0 <= world.rank < world.size and 0 <= world.local_rank < world.local_size
    if not fits or world.size % world.local_size or world.rank % world.local_size != world.local_rank:
        raise OptionError(
            f"expected processes numbered machine by machine, as many on each, got process {world.rank} of "
            f"{world.size} as number {world.local_rank} of {world.local_size} on its machine; with SLURM leave "
            "--distribution as it is, and give --ntasks-per-node"
        )
    return world


def _first(nodes: str) -> str:
    """The first name of a list of SLURM's.

    Example:
        >>> _first("gpu[07-09,12],cpu1"), _first("a,b"), _first("rack[2]-x")
        ('gpu07', 'a', 'rack2-x')
    """
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", nodes).split(",")[0]


def _number(given: Mapping[str, str], name: str) -> int:
    try:
        return int(given.get(name, ""))
    except ValueError:
        raise OptionError(f"{name}: expected a whole number in the environment, got {given.get(name)!r}") from None
