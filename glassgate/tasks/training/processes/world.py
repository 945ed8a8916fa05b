"""Reads the environment variables with which torchrun starts the processes of a training."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from glassgate.tasks.errors import OptionError


@dataclass(frozen=True)
class World:
    """The number of processes and the rank of this one; a single process by default.

    Attributes:
        rank: the rank of this process; process 0 writes files and shows the progress
        size: the number of processes
        local_rank: the rank of this process on its machine
        local_size: the number of processes on each machine
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def nodes(self) -> int:
        """Number of machines."""
        return self.size // self.local_size


def from_environment(env: Mapping[str, str] = os.environ) -> World:
    """Return the world that the variables of torchrun describe.

    Raises:
        OptionError: a variable is missing, or machines have different numbers of processes

    Example:
        >>> from_environment({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}).nodes
        2
    """
    if not env.get("WORLD_SIZE") or _number(env, "WORLD_SIZE") == 1:
        return World()
    world = World(*(_number(env, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")))
    if world.rank % world.local_size != world.local_rank or world.size % world.local_size:
        raise OptionError(
            "expected the same number of processes on each machine, with consecutive ranks, but process "
            f"{world.rank} of {world.size} is number {world.local_rank} of {world.local_size} on its machine; give "
            "each torchrun the same --nproc-per-node"
        )
    return world


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env.get(name, ""))
    except ValueError:
        raise OptionError(
            f"{name}: expected a whole number in the environment, got {env.get(name)!r}; start with torchrun, or unset "
            "WORLD_SIZE to train in one process"
        ) from None
