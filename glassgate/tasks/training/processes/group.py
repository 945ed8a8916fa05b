"""Messages between the processes of a training; a single process gets its own values back."""

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from glassgate.tasks.data.batches import Share
from glassgate.tasks.errors import UserError
from glassgate.tasks.training.processes.interface import interface_towards
from glassgate.tasks.training.processes.world import World, here

Value = TypeVar("Value")

_TIMEOUT = timedelta(minutes=30)  # for all to start, and for each message
_CPU = torch.device("cpu")


class LostError(UserError):
    """Another process is gone."""


class SharedError(UserError):
    """An error of one process that all processes raise."""


class Group:
    """The processes of a training: `group` makes it, once.

    Attributes:
        world: their number, and the place of this one
        advice: how to continue when another process is lost
    """

    def __init__(self, world: World):
        self.world = world
        self.advice = ""

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.world.size

    def __str__(self) -> str:
        places = f" on {self.world.nodes} machines" if self.world.nodes > 1 else ""
        return f"{self.size} processes{places}"

    @property
    def share(self) -> Share:
        """The rows of each batch that this process takes."""
        return Share(self.world.rank, self.size)

    @property
    def leads(self) -> bool:
        """Whether this is process 0, which writes the files, shows the progress and decides."""
        return self.world.rank == 0

    @contextmanager
    def of_a_training(self) -> Iterator[bool]:
        """Connect to the other processes; yield whether this one leads.

        Raises:
            UserError: some have not started
            LostError: another process is gone
        """
        self._connect()
        try:
            yield self.leads
        except RuntimeError as error:
            if self.size > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise LostError(
                    "another process is gone: it was killed, or its machine cannot be reached any more" + self.advice
                ) from error
            raise
        except UserError as error:
            if not (self.leads or isinstance(error, SharedError)):  # the other processes do not have this error
                print(f"process {self.world.rank} of {self.size}: {error}", file=sys.__stderr__, flush=True)
            raise

    def _connect(self) -> None:
        """Connect by Gloo, and between GPUs by NCCL."""
        if self.size == 1 or dist.is_initialized():
            return
        address, port = self.world.meeting_place()
        os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
        card = interface_towards(address, port) if self.world.nodes > 1 else ""
        if card:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", card)
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo",
                rank=self.world.rank,
                world_size=self.size,
                timeout=_TIMEOUT,
            )
        except RuntimeError as error:
            raise UserError(
                f"the {self.size} processes did not connect at {address}:{port} within "
                f"{_TIMEOUT.seconds // 60} minutes; check that all were started and that each machine reaches this "
                f"address ({' '.join(str(error).split())[:200]})"
            ) from None
        atexit.register(_disconnect)

    def first(self, value: Value) -> Value:
        """Return the value of process 0."""
        if self.size == 1:
            return value
        values = [value if self.leads else None]
        dist.broadcast_object_list(values, 0, device=_CPU)
        found: Any = values[0]
        return found

    def gathered(self, value: Value) -> list[Value]:
        """Return the values of all processes to process 0, to others none."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.leads else None
        dist.gather_object(value, values)
        return values or []

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers, in double precision."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def agreed(self, make: Callable[[], Value]) -> Value:
        """Return what process 0 makes; a UserError in it ends all."""
        made: Any = None
        with self.together():
            if self.leads:
                made = make()
        return self.first(made)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let a UserError of one process end all, with its message.

        Raises:
            SharedError: several processes, and one of them failed
        """
        fault: UserError | None = None
        try:
            yield
        except UserError as error:
            fault = error
        if self.size > 1:
            faults = self.gathered(str(fault) if fault else "")
            first = next((number for number, text in enumerate(faults) if text), None)
            shared = self.first((first, faults[first]) if first is not None else None)
            if shared is not None and not (self.leads and fault is not None):
                place = f"process {shared[0]}: " if shared[0] else ""
                raise SharedError(place + shared[1]) from fault
        if fault is not None:
            raise fault


def _disconnect() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


_groups: list[Group] = []


def group() -> Group:
    """Return the processes that this one trains with, as the environment describes them."""
    if not _groups or _groups[0].world != here():
        _groups[:] = [Group(here())]
    return _groups[0]
