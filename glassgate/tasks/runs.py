"""Run folders: the results of a training as JSON and safetensors files; each file is replaced atomically."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from glassgate.storage import replaced_files, write_file, write_remedy
from glassgate.tasks.errors import OptionError, RunError

FORMAT = 2
"""The format of run folders; runs in other formats are refused."""

MODEL = "model.safetensors"
CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.json"
RUN = "run.json"
_STATE = "state"  # the key of safetensors' metadata that holds a checkpoint's JSON


@dataclass(frozen=True)
class Run:
    """A run folder that exists.

    Attributes:
        path: the folder
        content: the content of run.json: task name, options, vocabularies, fingerprints of the data
    """

    path: Path
    content: Mapping[str, Any]

    @staticmethod
    def check_new(path: str | Path) -> None:
        """Raise a RunError if a run cannot be written to a path without overwriting anything."""
        path = Path(path)
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                got = "one with files" if path.is_dir() else "a file"
                raise RunError(f"{path}: expected a new or empty folder for the run, got {got}; give another --run")
        except OSError as error:
            raise _cannot_create(path, error.strerror) from None
        if str(path) != str(path).encode(errors="replace").decode():  # TensorBoard cannot write there
            raise _cannot_create(path, "its name is not UTF-8")
        existing = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
        if not existing.is_dir():
            raise _cannot_create(path, f"{existing} is a file")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise _cannot_create(path, f"no permission to write to {existing}")

    @classmethod
    def create(cls, path: str | Path, content: Mapping[str, Any]) -> "Run":
        """Create the folder, which must be new or empty, and write run.json."""
        cls.check_new(path)
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_create(path, error.strerror) from None
        write_json(path / RUN, {"format": FORMAT, **content})
        return cls(path, content)

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """Read run.json.

        Raises:
            RunError: the folder is missing, contains no run or a damaged run, or is in another format
        """
        path = Path(path)
        if not path.is_dir():
            raise RunError(f"{path}: no such run folder; `glassgate train TASK` makes one under runs/")
        file = path / RUN
        if not file.exists():
            raise RunError(f"{path}: expected a run folder, got one without {RUN}; give the folder that training made")
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            version = int(content["format"])
            is_complete = version != FORMAT or _is_complete(content)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            is_complete = False
        if not is_complete:
            raise _damaged(file)
        if version != FORMAT:
            newer, older = ("a newer", "upgrade: pip install --upgrade glassgate"), ("an older", "train again")
            age, remedy = newer if version > FORMAT else older
            raise RunError(
                f"{file}: made by {age} version of glassgate (format {version}, this one reads format {FORMAT}); "
                f"{remedy}"
            )
        return cls(path, content)

    def save_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the model's weights."""
        write(self.path / MODEL, save(_contiguous(tensors)))

    def load_model(self) -> dict[str, Tensor]:
        """Read the model's weights."""
        if not (self.path / MODEL).exists():
            raise RunError(
                f"{self.path}: incomplete, it has no {MODEL} yet; "
                f"finish the training: glassgate train --resume {self.path}"
            )
        return _load(self.path / MODEL)[0]

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint. Tensors and state are in one file, so both are always of the same step."""
        write(self.path / CHECKPOINT, save(_contiguous(tensors), {_STATE: json.dumps(state)}))

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Read the checkpoint's tensors and state; None before the first checkpoint."""
        if not (self.path / CHECKPOINT).exists():
            return None
        tensors, metadata = _load(self.path / CHECKPOINT)
        return tensors, json.loads(metadata[_STATE])

    def metrics(self) -> dict[str, Any]:
        """Read metrics.json; empty for an unfinished run, or a model written by `Task.save`."""
        file = self.path / METRICS
        try:
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        except ValueError:
            raise _damaged(file) from None
        return content

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write metrics.json, which marks the run as finished, and remove the checkpoint."""
        write_json(self.path / METRICS, result)
        self.remove_checkpoint()

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint; the weights of the best epoch are in the model's file."""
        (self.path / CHECKPOINT).unlink(missing_ok=True)

    def check_unfinished(self, usage: str) -> None:
        """Raise a RunError if the run is finished, or is a model written by `Task.save`.

        Args:
            usage: a command for a finished run, with the placeholders {run} and {file}
        """
        if "data" not in self.content:
            raise RunError(f"{self.path}: expected an unfinished run, got a model without a training")
        if (self.path / METRICS).exists():
            raise RunError(
                f"{self.path}: the run is finished and cannot be resumed; "
                f"its scores are in {METRICS}, and `glassgate {usage.format(run=self.path, file='FILE')}` uses it"
            )


def next_folder(task: str, root: str | Path = "runs") -> Path:
    """Return the first folder `root/task-N` that does not exist."""
    folders = (Path(root) / f"{task}-{number}" for number in count(1))
    return next(folder for folder in folders if not folder.exists())


def write_json(path: Path, content: Any) -> None:
    """Replace a file by JSON atomically. If the content has file names that are not Unicode, escape them."""
    try:
        raw = json.dumps(content, indent=1, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raw = json.dumps(content, indent=1).encode()
    write(path, raw + b"\n")


def write(path: Path, content: bytes) -> None:
    """Replace a file atomically. If this fails, for example because the disk is full, the old content is kept."""
    with writing(path):
        write_file(path, content)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert the errors of writing a file or folder, in a run folder or elsewhere, to RunErrors with a remedy."""
    try:
        yield
    except OSError as error:
        remedy = write_remedy(error)
        for run in path.parents[:2]:
            if (run / RUN).exists() and not (run / METRICS).exists():
                resume = f"resume with: glassgate train --resume {run}"
                remedy = f"files saved earlier are complete: free disk space, then {resume}"
        raise RunError(f"{path}: could not be written ({error.strerror}); {remedy}") from error


@contextmanager
def all_or_none(folder: Path, create: bool = False) -> Iterator[Path]:
    """Yield a temporary folder. After the block, its files are moved to `folder`; after an error, they are deleted.

    Args:
        folder: the folder for the files
        create: whether to create `folder` if it is missing
    """
    try:
        with replaced_files(folder, create) as temporary:
            yield temporary
    except OSError as error:
        raise OptionError(f"--output: cannot write to {folder}: {error.strerror}; {write_remedy(error)}") from error


def version_error(run: str | Path, error: OptionError | str) -> RunError:
    """Return the error for a run whose task or options this version does not have."""
    return RunError(
        f"{run}: made by another version of glassgate: {error}; upgrade: pip install -U glassgate, or train again"
    )


def _cannot_create(path: Path, reason: str | None) -> RunError:
    return RunError(f"{path}: cannot create the run folder ({reason}); give another --run")


def _damaged(file: Path, reason: str = "") -> RunError:
    return RunError(f"{file}: damaged or cut short{reason}; copy the folder again, or train again")


def _is_complete(content: Mapping[str, Any]) -> bool:
    """Whether run.json has all required entries, with the right types."""
    symbols = [*content["vocabularies"].values()]
    valid_training = isinstance(content.get("data"), dict) and isinstance(content.get("threads"), int)
    return (
        isinstance(content["task"], str)
        and isinstance(content["options"], dict)
        and isinstance(content["fitted"], dict)
        and {"options", "width"} <= content["reading"].keys()
        and all(isinstance(each, list) and all(isinstance(symbol, str) for symbol in each) for each in symbols)
        and (valid_training or "data" not in content)
    )


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _load(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    content = path.read_bytes()
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise _damaged(path, f" ({error})") from None
    header_size = int.from_bytes(content[:8], "little")
    return tensors, json.loads(content[8 : 8 + header_size]).get("__metadata__", {})
