"""The messages between the processes of a training; a single process answers itself."""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore

from glassgate.tasks.data.batches import Share
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.training.processes.interface import interface_towards
from glassgate.tasks.training.processes.presence import LOST_AFTER, Presence, sign
from glassgate.tasks.training.processes.world import World, here

Value = TypeVar("Value")

_MEET = timedelta(minutes=10)  # all have to have come by then
_EVER = timedelta(days=30)  # `Presence` finds lost processes, so that a slow one is not taken for lost
_SLOW = timedelta(seconds=LOST_AFTER)


class LostError(UserError):
    """Another process is gone, or has ended on its own account."""


class Group:
    """The processes of a training: `here` makes it, once.

    Attributes:
        world: which they are
    """

    def __init__(self, world: World):
        self.world = world
        self._presence: Presence | None = None

    @property
    def size(self) -> int:
        """How many there are."""
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
        """Wait for the other processes for the duration of the `with`; yields whether this process leads.

        Raises:
            UserError: some processes did not come
            LostError: another process is gone
        """
        self._meet()
        with self.guarded():
            yield self.leads

    def _meet(self) -> None:
        """Meet the others; GPUs exchange their tensors by NCCL, processors by Gloo."""
        world = self.world
        if self.size == 1 or dist.is_initialized():
            return
        card = interface_towards(world.address, world.port) if world.nodes > 1 else ""
        if card and "GLOO_SOCKET_IFNAME" not in os.environ:
            os.environ["GLOO_SOCKET_IFNAME"] = card
        try:
            store = self._store(_MEET, is_first=self.leads)
            signs = PrefixStore("signs", store)
            signs.set(str(world.rank), sign())
            signs.wait([str(rank) for rank in range(self.size)])
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo",
                store=PrefixStore("group", store),
                rank=world.rank,
                world_size=self.size,
                timeout=_EVER,
            )
        except RuntimeError as error:
            raise UserError(
                f"the {self.size} processes did not meet at {world.address}:{world.port} within "
                f"{_MEET.seconds // 60} minutes; see that all were started, and that each machine reaches this place "
                f"({' '.join(str(error).split())[:200]})"
            ) from None
        self._presence = Presence(lambda: PrefixStore("signs", self._store(_SLOW)), world)
        atexit.register(self._part)

    def leave(self, why: str = "") -> None:
        """Announce that this process has no more messages, with the reason if it ends before the others expect it."""
        if self._presence is not None:
            self._presence.end(why)

    def advise(self, text: str) -> None:
        """Keep what to say where another process is lost."""
        if self._presence is not None:
            self._presence.advice = text

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
        """Let a UserError of one process end all, with its sentence."""
        fault: UserError | None = None
        try:
            yield
        except UserError as error:
            fault = error
        if self.size > 1:
            faults = self.gathered(str(fault) if fault else "")
            first = next((number for number, text in enumerate(faults) if text), None)
            told = self.first((first, faults[first]) if first is not None else None)
            if told is not None and (told[0] or fault is None):
                place = f"process {told[0]}: " if told[0] else ""
                raise UserError(place + told[1]) from fault
        if fault is not None:
            raise fault

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """When an exchange fails, name the lost process; if this one fails, report it to the others.

        Raises:
            LostError: another process is gone
        """
        try:
            yield
        except RuntimeError as error:
            lost = self._presence.lost() if self._presence else ""
            if not lost or self._presence is None:
                self.leave(f"ended by {type(error).__name__}: {error}")
                raise
            self.leave()
            raise LostError(lost + self._presence.advice) from error
        except BaseException as error:
            if not isinstance(error, Interrupted | KeyboardInterrupt | SystemExit):  # which all of them get
                self.leave(str(error) if isinstance(error, UserError) else f"ended by {type(error).__name__}: {error}")
            raise

    def _part(self) -> None:
        self.leave()
        if self._presence is not None:
            self._presence.close()
        if dist.is_initialized():
            dist.destroy_process_group()

    @property
    def speaks(self) -> bool:
        """Whether this process says to the user what happened to all."""
        return self.leads or (self._presence is not None and self._presence.speaks())

    def _store(self, patience: timedelta, is_first: bool = False) -> Store:
        """Open a connection to what all share; torchrun keeps it itself, else process 0 does."""
        keeps = is_first and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        return TCPStore(self.world.address, self.world.port, None, keeps, patience, wait_for_workers=False)


_CPU = torch.device("cpu")
_groups: list[Group] = []


def group() -> Group:
    """Return the processes that this one trains with, as the environment describes them."""
    if not _groups or _groups[0].world != here():
        _groups[:] = [Group(here())]
    return _groups[0]
