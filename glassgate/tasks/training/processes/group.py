"""Communication between the processes of a training; with a single process, values are returned unchanged."""

import atexit
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from glassgate.tasks.data.batches import Encoded, Shard
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.errors import UserError
from glassgate.tasks.training.processes.world import World

Value = TypeVar("Value")

_TIMEOUT = timedelta(minutes=30)  # of the connection, and of each collective operation
_CPU = torch.device("cpu")


class SharedError(UserError):
    """An error of one process that all processes raise."""


class Group(World):
    """The processes of a training, for example `Group.from_environment()`."""

    def __str__(self) -> str:
        machines = self.size // self.local_size
        return f"{self.size} processes" + (f" on {machines} machines" if machines > 1 else "")

    @property
    def shard(self) -> Shard:
        """The rows of each batch that this process trains on."""
        return Shard(self.rank, self.size)

    @property
    def is_main(self) -> bool:
        """Whether this is process 0, which writes files and shows the progress."""
        return self.rank == 0

    @contextmanager
    def connected(self) -> Iterator[bool]:
        """Connect to the other processes; yield whether this is process 0.

        If the connection to another process is lost, a UserError says so, with the notes of the original error.
        """
        self._connect()
        try:
            yield self.is_main
        except RuntimeError as error:
            if self.size > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error)):
                lost = "another process is gone: it was killed, or its machine cannot be reached any more"
                raise UserError("; ".join([lost, *getattr(error, "__notes__", ())])) from error
            raise
        except UserError as error:
            if not (self.is_main or isinstance(error, SharedError)):  # only this process has the error
                print(f"process {self.rank} of {self.size}: {error}", file=sys.__stderr__, flush=True)
            raise

    def _connect(self) -> None:
        """Connect with Gloo on CPUs and NCCL on GPUs."""
        if self.size == 1 or dist.is_initialized():
            return
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo",
                rank=self.rank,
                world_size=self.size,
                timeout=_TIMEOUT,
            )
        except RuntimeError as error:
            raise UserError(
                f"the {self.size} processes did not connect at {os.environ.get('MASTER_ADDR')}:"
                f"{os.environ.get('MASTER_PORT')} within "
                f"{_TIMEOUT.seconds // 60} minutes; check that all were started and that each machine reaches this "
                f"address; see GLOO_SOCKET_IFNAME ({' '.join(str(error).split())[:200]})"
            ) from None
        atexit.register(_disconnect)

    def broadcast(self, value: Value) -> Value:
        """Return the value of process 0."""
        if self.size == 1:
            return value
        values = [value if self.is_main else None]
        dist.broadcast_object_list(values, 0, device=_CPU)
        received: Any = values[0]
        return received

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes in process 0, and an empty list in the others."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(value, values)
        return values or []

    def sum(self, numbers: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes, in float64 if there are several."""
        if self.size == 1:
            return numbers
        total = numbers.double()
        dist.all_reduce(total)
        return total

    def broadcast_result(self, make: Callable[[], Value]) -> Value:
        """Call a function in process 0 and return its result in all processes; a UserError is raised in all."""
        result: Any = None
        with self.shared_errors():
            if self.is_main:
                result = make()
        return self.broadcast(result)

    @contextmanager
    def shared_errors(self) -> Iterator[None]:
        """Raise a UserError of one process in all processes; it is a SharedError in the others."""
        own_error: UserError | None = None
        try:
            yield
        except UserError as error:
            own_error = error
        if self.size > 1:
            messages = self.gather(str(own_error) if own_error else "")
            shared = self.broadcast(next(((rank, text) for rank, text in enumerate(messages) if text), None))
            if shared is not None and not (self.is_main and own_error is not None):
                rank, message = shared
                raise SharedError(f"process {rank}: {message}" if rank else message) from own_error
        if own_error is not None:
            raise own_error

    def fingerprints(self, encoded: Mapping[str, Sequence[Encoded]]) -> dict[str, str]:
        """Return the fingerprint of each split of the data, by name; raise a UserError if the processes differ."""
        own = {name: _fingerprint(split) for name, split in encoded.items()}
        with self.shared_errors():
            for name, fingerprint in self.broadcast(own).items():
                if own[name] != fingerprint:
                    raise UserError(f"the {name} data is not what process 0 has read; give all machines the same files")
        return own


def _disconnect() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _fingerprint(encoded: Sequence[Encoded]) -> str:
    if isinstance(encoded, Corpus) and encoded.digest:
        return encoded.digest
    digest = hashlib.blake2b(digest_size=16)
    for fields in encoded:
        for name in sorted(fields):
            digest.update(f"{name}{fields[name].shape}".encode())
            digest.update(fields[name].tobytes())
    return digest.hexdigest()
