"""Run folders: the results of a training as JSON and safetensors files; each file is replaced atomically."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from glassgate.storage import replaced_files, write_file, write_remedy
from glassgate.tasks.errors import OptionError, RunError, UserError

FORMAT = 2
"""The format of run folders. In format 1, attention scores were not divided by the square root of the query size."""

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
        """Check that a run can be written to a path without overwriting anything.

        Raises:
            RunError: the path is a file or a folder with files, or the folder cannot be created
        """
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
        """Create the folder and write run.json.

        Raises:
            RunError: the folder exists and is not empty
        """
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
            RunError: the folder is missing, contains no run or a damaged run, or is from a newer version
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
            if "facts" in content:  # the name of "fitted" in older runs
                content["fitted"] = content.pop("facts")
            complete = version > FORMAT or _is_complete(content)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            complete = False
        if not complete:
            raise RunError(f"{file}: damaged or cut short; copy the folder again, or train again")
        if version > FORMAT:
            raise RunError(
                f"{file}: made by a newer version of glassgate (format {version}, this one reads up to {FORMAT}); "
                "upgrade: pip install --upgrade glassgate"
            )
        return cls(path, content)

    def save_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the model's weights."""
        write(self.path / MODEL, save(_contiguous(tensors)))

    def load_model(self) -> dict[str, Tensor]:
        """Read the model's weights.

        Raises:
            RunError: no weights have been written yet, or the file is damaged
        """
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
        """Read the checkpoint's tensors and state; None before the first checkpoint.

        Raises:
            RunError: the file is damaged
        """
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
            raise RunError(f"{file}: damaged or cut short; copy the folder again, or train again") from None
        return content

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write metrics.json, which marks the run as finished, and remove the checkpoint."""
        write_json(self.path / METRICS, result)
        self.remove_checkpoint()

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint; the weights of the best epoch are in the model's file."""
        (self.path / CHECKPOINT).unlink(missing_ok=True)

    def check_unfinished(self, usage: str) -> None:
        """Check that the run can be resumed.

        Args:
            usage: a command for a finished run, with the placeholders {run} and {file}

        Raises:
            RunError: the run is finished, or is a model written by `Task.save`
        """
        if "data" not in self.content:
            raise RunError(f"{self.path}: expected an unfinished run, got a model without a training")
        if (self.path / METRICS).exists():
            raise RunError(
                f"{self.path}: the run is finished and cannot be resumed; "
                f"its scores are in {METRICS}, and `glassgate {usage.format(run=self.path, file='FILE')}` uses it"
            )


def next_folder(task: str, root: str | Path = "runs") -> Path:
    """Return the first folder `root/task-N` that does not exist.

    Example:
        >>> next_folder("tagging", "/nowhere").as_posix()
        '/nowhere/tagging-1'
    """
    number = 1
    while (Path(root) / f"{task}-{number}").exists():
        number += 1
    return Path(root) / f"{task}-{number}"


def write_json(path: Path, content: Any) -> None:
    """Replace a file by JSON atomically. If the content has file names that are not Unicode, escape them."""
    try:
        raw = json.dumps(content, indent=1, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raw = json.dumps(content, indent=1).encode()
    write(path, raw + b"\n")


@contextmanager
def all_or_none(folder: Path, create: bool = False) -> Iterator[Path]:
    """Yield a temporary folder. After the block, its files are moved to `folder`; after an error, they are deleted.

    Args:
        folder: the folder for the files
        create: whether to create `folder` if it is missing

    Raises:
        OptionError: `folder` is missing or cannot be written to
    """
    try:
        with replaced_files(folder, create) as temporary:
            yield temporary
    except OSError as error:
        raise OptionError(f"--output: cannot write to {folder}: {error.strerror}; {write_remedy(error)}") from error


def write(path: Path, content: bytes, run: Path | None = None) -> None:
    """Replace a file atomically, see `storage.write_file`.

    Args:
        run: the run folder that contains the file; the folder of the file if None

    Raises:
        RunError: the file cannot be written, for example because the disk is full; the old content is kept
    """
    try:
        write_file(path, content)
    except OSError as error:
        raise cannot_write_error(path, run or path.parent, error) from error


def cannot_write_error(path: Path, run: Path, error: OSError) -> RunError:
    """Return the error for a file that cannot be written, in a run folder or elsewhere."""
    remedy = write_remedy(error)
    if (run / RUN).exists() and not (run / METRICS).exists():
        remedy = f"files saved earlier are complete: free disk space, then resume with: glassgate train --resume {run}"
    return RunError(f"{path}: could not be written ({error.strerror}); {remedy}")


def damaged_error(run: str | Path, error: Exception) -> RunError:
    """Return the error for a run.json from which no network can be built, for example after an edit."""
    return RunError(
        f"{Path(run) / RUN}: no network can be built from it ({error!r}); copy the folder again, or train again"
    )


def version_error(run: str | Path, error: OptionError | str) -> RunError:
    """Return the error for a run whose task or options this version does not have."""
    return RunError(
        f"{run}: made by another version of glassgate: {error}; upgrade: pip install -U glassgate, or train again"
    )


def _cannot_create(path: Path, reason: str | None) -> RunError:
    return RunError(f"{path}: cannot create the run folder ({reason}); give another --run")


def _is_complete(content: Mapping[str, Any]) -> bool:
    """Whether run.json has all required entries, with the right types."""
    symbols = content["vocabularies"].values() if isinstance(content["vocabularies"], dict) else [None]
    has_training = "data" in content
    valid_training = isinstance(content.get("data"), dict) and isinstance(content.get("threads"), int)
    return (
        isinstance(content["task"], str)
        and isinstance(content["options"], dict)
        and isinstance(content["fitted"], dict)
        and all(isinstance(each, list) and all(isinstance(symbol, str) for symbol in each) for each in symbols)
        and (valid_training or not has_training)
    )


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _load(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    content = path.read_bytes()
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise RunError(f"{path}: damaged or cut short ({error}); copy the folder again, or train again") from None
    # Older runs call the projection of tied weights "narrow".
    tensors = {name.replace(".narrow.", ".projection."): tensor for name, tensor in tensors.items()}
    header_size = int.from_bytes(content[:8], "little")
    return tensors, json.loads(content[8 : 8 + header_size]).get("__metadata__", {})


@contextmanager
def convert_build_errors(run: Run) -> Iterator[None]:
    """Convert errors from a damaged run.json to errors that name the run."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise error if isinstance(error, UserError) else damaged_error(run.path, error) from None
