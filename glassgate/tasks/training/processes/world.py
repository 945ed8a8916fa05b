"""Reads the environment variables with which torchrun starts the processes of a training."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

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

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> Self:
        """Return the world that the variables of torchrun describe."""
        numbers: list[int] = []
        for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            if not env.get("WORLD_SIZE") or numbers == [1]:
                return cls()
            try:
                numbers.append(int(env.get(name, "")))
            except ValueError:
                raise OptionError(
                    f"{name}: expected a whole number in the environment, got {env.get(name)!r}; start with torchrun, "
                    "or unset WORLD_SIZE to train in one process"
                ) from None
        size, rank, local_rank, local_size = numbers
        if rank % local_size != local_rank or size % local_size:
            raise OptionError(
                "expected the same number of processes on each machine, with consecutive ranks, but process "
                f"{rank} of {size} is number {local_rank} of {local_size} on its machine; give each torchrun the same "
                "--nproc-per-node"
            )
        return cls(rank, size, local_rank, local_size)
