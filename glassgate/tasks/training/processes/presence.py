"""A heartbeat from each process to all others, so that a lost one is named and no process waits for it."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from itertools import count

from torch.distributed import Store

from glassgate.tasks.training.processes.world import STARTED_BY, World

LOST_AFTER = 40.0  # seconds without a sign
_SURE_AFTER = 4.0  # seconds without one where something else went wrong already
_BEAT = 1.0  # seconds; longer with many processes, whose signs all pass through one
_END = "end"


def sign(beat: int = 0) -> str:
    """A sign of life of this process: how many there were, its number and its machine."""
    return f"{beat} number {os.getpid()} on {socket.gethostname()}"


class Presence:
    """Gives the signs of this process, and looks for those of the others, in a thread of its own.

    Args:
        connect: opens a connection, for this thread alone, to the store where each has given a first sign
        world: the processes
    """

    def __init__(self, connect: Callable[[], Store], world: World):
        self.world = world
        self.advice = ""
        self._connect = connect
        self._beat = max(_BEAT, world.size / 32)
        self._signs = dict.fromkeys(range(world.size), ("", ""))  # how many, and from where
        self._seen = dict.fromkeys(range(world.size), time.monotonic())
        self._ended: dict[int, str] = {}
        self._turn = time.monotonic()  # when the store last answered
        self._broken = False
        self._leaving = False
        self._closed = threading.Event()
        self._parent = os.environ.get(STARTED_BY)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._live, self._guard)]
        for thread in self._threads:
            thread.start()

    def end(self, why: str = "") -> None:
        """Tell the others that this process ends on its own account, and why where that ends them, too."""
        self._leaving = True
        try:
            self._store.set(str(self.world.rank), f"{_END} {why}")
        except (RuntimeError, AttributeError):  # the store, or what kept it, is gone
            return

    def close(self) -> None:
        """End the threads: one that asks the store while the interpreter ends brings the process down."""
        self._closed.set()
        for thread in self._threads:
            thread.join(_SURE_AFTER)

    def lost(self) -> str:
        """Return a few seconds after a failure the description of the process that caused it, or an empty text."""
        began = time.monotonic()
        # Of whom no sign is seen by then is gone, on a machine that is slow to answer, too.
        while self._turn < began + _SURE_AFTER + 2 * self._beat and time.monotonic() < began + LOST_AFTER:
            time.sleep(0.1)
            for rank, why in [*self._ended.items()]:
                if why:
                    return f"{self._name(rank)}: {why}"
            if self._broken and self.world.rank:
                return self._gone([0])
        silent = self._silent(began + _BEAT)
        return self._gone(silent) if silent else ""

    def speaks(self) -> bool:
        """Whether this process is the first of those that live, which speaks for all."""
        if self._broken or self._store_is_silent():  # process 0 kept it
            return self.world.local_rank == 0 or self.world.rank == 1
        now = time.monotonic()
        return all(now - self._seen[rank] > _SURE_AFTER for rank in range(self.world.rank))

    def _live(self) -> None:
        """Give a sign each second and look at those of all."""
        try:
            self._store = self._connect()
            for beat in count(1):
                if not self._leaving:
                    self._store.set(str(self.world.rank), sign(beat))
                found = self._store.multi_get([str(rank) for rank in self._signs])
                now = self._turn = time.monotonic()
                for rank, raw in enumerate(found):
                    kind, _, text = raw.decode().partition(" ")
                    if kind == _END:
                        self._ended[rank] = text
                    elif (kind, text) != self._signs[rank]:
                        self._signs[rank], self._seen[rank] = (kind, text), now
                if self._closed.wait(self._beat):
                    return
        except RuntimeError:
            self._broken = True

    def _guard(self) -> None:
        """End this process where another is gone, or the one that started it."""
        while not (self._leaving or self._closed.wait(_BEAT)):
            if self._parent and os.getppid() != int(self._parent):
                os._exit(1)
            now = time.monotonic()
            silent = [0] if self.world.rank and self._store_is_silent() else self._silent(now - LOST_AFTER)
            if silent and not self._leaving:
                if self.speaks():
                    print(f"glassgate train: {self._gone(silent)}{self.advice}", file=sys.__stderr__, flush=True)
                os._exit(2)  # the other thread waits for an answer that never comes; all saved files are complete

    def _silent(self, since: float) -> list[int]:
        """Which of the others have given no sign since then, and not ended either."""
        others = [rank for rank in self._seen if rank != self.world.rank]
        return [rank for rank in others if self._seen[rank] < since and rank not in self._ended]

    def _store_is_silent(self) -> bool:
        return time.monotonic() - self._turn > LOST_AFTER

    def _gone(self, ranks: list[int]) -> str:
        names = ", ".join(self._name(rank) for rank in ranks)
        return f"{names} is gone: it was killed, or its machine cannot be reached any more"

    def _name(self, rank: int) -> str:
        _, place = self._signs[rank]
        return f"process {rank} of {self.world.size}" + (f" ({place})" if place else "")
