"""Selects the device of a process, and checks that torch supports the requested device and precision."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from glassgate.tasks.errors import OptionError, UserError
from glassgate.tasks.options import Options
from glassgate.tasks.training.processes.world import World


def device_of(options: Options, processes: World) -> torch.device:
    """Return the device that this process trains on; `auto` prefers a GPU."""
    if options.device in ("auto", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", processes.local_rank % torch.cuda.device_count())
    if options.device in ("auto", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def check_device(options: Options, processes: World) -> None:
    """Check the device and the precision, and that several processes can share the data and the batches."""
    name, available = options.device, {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(name, True):
        raise OptionError(f"device: expected an available device, got {name}; choose cpu or auto")
    if options.precision == "16-mixed" and not (name in available or (name == "auto" and any(available.values()))):
        raise OptionError("precision: 16-mixed needs a GPU, and this training uses none; choose bf16-mixed or 32-true")
    if processes.size == 1:
        return
    if "-" in (options.training_file, options.dev, options.test):
        raise OptionError("data: several processes cannot share standard input; give a file")
    if 0 < options.batch_size < processes.size:
        raise OptionError(
            f"batch_size: expected {processes.size} or more, a sequence for each process, got {options.batch_size}"
        )
    if name == "mps" or (name == "auto" and not available["cuda"] and available["mps"]):
        raise OptionError("device: Apple's GPU cannot be shared by several processes; add --device cpu")
    if name != "cpu" and available["cuda"] and torch.cuda.device_count() < processes.local_size:
        raise OptionError(
            f"devices: {processes.local_size} processes of this machine need a GPU each, but the machine has "
            f"{torch.cuda.device_count()}; start fewer processes, or add --device cpu"
        )


@contextmanager
def convert_memory_errors(options: Options) -> Iterator[None]:
    """Convert out-of-memory errors to errors with a remedy."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error)):
            raise
        reason = next(iter(str(error).splitlines()), "it is full")
        raise UserError(
            f"the network or a batch does not fit into memory ({reason}); choose a smaller --hidden-size than "
            f"{options.hidden_size}, or a smaller --batch-size than {options.batch_size}"
        ) from None
