"""Options: one frozen dataclass per task. The command line, YAML and JSON files and saved runs use the same names."""

import dataclasses
import difflib
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, get_args, get_type_hints

import yaml

from glassgate.tasks import cells
from glassgate.tasks.errors import OptionError

_MAXIMUM = {int: 2**31 - 1, float: math.inf}  # for options without a maximum; larger integers would overflow


def option(
    default: Any,
    help: str,
    *,
    group: str = "model",
    choices: tuple[Any, ...] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    if_unset: str = "",
    metavar: str = "NAME",
) -> Any:
    """Declare an option: a dataclass field with its description and its allowed values.

    Args:
        default: the value if the option is not given
        help: one line for users
        group: the heading in the help: "data", "model" or "training"
        choices: all allowed values; strings are lower case, and users may write them in any case
        minimum: the smallest allowed value
        maximum: the largest allowed value
        if_unset: what happens if the option is not given, for the help; empty to show the default value
        metavar: the placeholder of a text value in the help
    """
    rules = {"choices": choices, "minimum": minimum, "maximum": maximum}
    texts = {"help": help, "group": group, "if_unset": if_unset, "metavar": metavar}
    return field(default=default, metadata={**rules, **texts})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of every task. Values of the wrong type or out of their range raise an OptionError.

    Attributes:
        common: the names of the options that the short help shows
        file_options: the names of the options that describe a file, which commands accept for the files that they read
    """

    common: ClassVar[tuple[str, ...]] = ("data", "dev", "test", "cell", "hidden_size", "epochs", "learning_rate")

    file_options: ClassVar[tuple[str, ...]] = ("encoding",)

    data: str | None = option(None, "training file", group="data", if_unset="none; required", metavar="FILE")
    dev: str | None = option(
        None,
        "file to select the best epoch by",
        group="data",
        if_unset="part of --data; no dev data with --test",
        metavar="FILE",
    )
    test: str | None = option(
        None,
        "file to score after training",
        group="data",
        if_unset="part of --data; no test data with --dev",
        metavar="FILE",
    )
    held_out: float = option(
        0.1, "fraction of --data for dev data, and the same for test data", group="data", minimum=0, maximum=0.4
    )

    encoding: str = option("", "encoding of the text files, such as cp1252", group="data", if_unset="detected")

    cell: Any = option("lstm", cells.HELP)  # noqa: RUF009
    hidden_size: int = option(128, "units per direction", minimum=1, maximum=2**16)
    num_layers: int = option(1, "number of recurrent layers", minimum=1, maximum=1000)
    bidirectional: bool = option(True, "read sequences from both ends")
    init: str = option(
        "auto",
        "initialisation of the weights; auto is xavier_orthogonal, or torch for cells that have no such scheme",
        choices=("auto", "xavier_orthogonal", "torch"),
    )
    embedding_size: int = option(64, "size of the vector of a token", minimum=1, maximum=2**16)
    dropout: float = option(0.0, "dropout after the embedding and after each layer", minimum=0, maximum=1)

    epochs: int = option(
        0,
        "passes over the training data",
        group="training",
        minimum=0,
        if_unset="by data size; more while the dev score improves",
    )
    max_epochs: int = option(
        0,
        "maximum number of epochs; training continues while the dev score improves",
        group="training",
        minimum=0,
        if_unset="--epochs, or four times the number chosen by data size",
    )
    batch_size: int = option(0, "examples per step", group="training", minimum=0, if_unset="by data size")
    learning_rate: float = option(3e-3, "peak learning rate of AdamW", group="training", minimum=0)
    lr_find: bool = option(False, "find the learning rate first, in 100 steps", group="training")
    warmup: float = option(
        0.05, "fraction of the steps in which the rate rises", group="training", minimum=0, maximum=1
    )
    weight_decay: float = option(0.01, "weight decay of AdamW", group="training", minimum=0)
    clip: float = option(1.0, "clip the norm of the gradient; 0 disables it", group="training", minimum=0)
    accumulate: int = option(1, "batches per optimizer step", group="training", minimum=1)
    patience: int = option(0, "stop after N epochs without a better score", group="training", minimum=0, if_unset="off")
    precision: str = option(
        "32-true",
        "floating-point precision; 16-mixed needs a GPU",
        group="training",
        choices=("32-true", "bf16-mixed", "16-mixed"),
    )
    device: str = option("auto", "device to train on", group="training", choices=("auto", "cpu", "cuda", "mps"))
    threads: int = option(0, "CPU threads", group="training", minimum=0, maximum=1024, if_unset="torch's choice")
    seed: int = option(1, "seed of weights, order and dropout", group="training", minimum=0, maximum=2**63 - 1)
    baselines: bool = option(True, "compare the scores with those of simple models", group="training")
    lyapunov: int = option(
        0,
        "after each epoch, log Lyapunov exponents over N steps of dev data",
        group="training",
        minimum=0,
        if_unset="off",
    )
    log_every: int = option(50, "steps from one row of the logs to the next", group="training", minimum=1)
    save_every: float = option(20.0, "seconds from one checkpoint to the next", group="training", minimum=0)

    def __post_init__(self) -> None:
        for option_field in dataclasses.fields(self):
            name = option_field.name
            value = getattr(self, name)
            if name == "cell":
                object.__setattr__(self, "cell", cells.check(value))
                continue
            if name == "encoding":
                check_encoding(value)
            if option_field.metadata["choices"] and isinstance(value, str):
                object.__setattr__(self, name, value.lower())
            _check(option_field, value_type(type(self), name), getattr(self, name))

    def rate_for(self, batch_size: int) -> float:
        """Return the peak learning rate for a batch size. Tasks may override it."""
        return self.learning_rate

    @property
    def training_file(self) -> str | None:
        """The file to train on; None for built-in data."""
        return self.data

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build options from names and values, for example those of a file or a run."""
        names = [each.name for each in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                near = difflib.get_close_matches(str(name), names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(names)}"
                raise OptionError(f"unknown option {name!r}; {hint}")
        return cls(**{name: _coerce(value_type(cls, name), value) for name, value in values.items()})

    def to_mapping(self) -> dict[str, Any]:
        """Return all names and values in a form that JSON and YAML can store."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return values | {"cell": cells.as_json(self.cell)}

    def with_absolute_paths(self) -> Self:
        """Return the options with absolute paths of files, so that a run can be used from any folder."""
        changed: dict[str, Any] = {}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if each.metadata["metavar"] == "FILE" and value not in (None, "-"):  # "-" is standard input
                names = [value] if Path(value).exists() else value.split(",")  # two parallel files, A,B
                changed[each.name] = ",".join(os.path.abspath(name) for name in names)
        return dataclasses.replace(self, **changed)

    def to_yaml(self) -> str:
        """Return all names and values as a YAML file, each with its explanation."""
        values, lines = self.to_mapping(), []
        for each in dataclasses.fields(self):
            value = values[each.name]
            is_cell = isinstance(value, dict)  # JSON, which is YAML on one line
            text = f"{each.name}: {json.dumps(value)}" if is_cell else yaml.safe_dump({each.name: value}).strip()
            lines.append(f"{text}  # {each.metadata['help']}")
        return "\n".join(lines) + "\n"


def override(name: str, default: Any, **rules: Any) -> Any:
    """Declare an option of `Options` again for one task, with another default and other arguments of `option`."""
    return field(default=default, metadata={**Options.__dataclass_fields__[name].metadata, **rules})


def read_config(path: str | Path) -> dict[str, Any]:
    """Read names and values from a YAML or JSON file."""
    is_json = Path(path).suffix == ".json"
    try:
        with Path(path).open("rb") as file:
            if file.seekable() and not Path(path).is_file():
                raise OptionError(f"--config {path}: this is a device; give a file such as --print-config prints")
            text = file.read().decode()
        values = json.loads(text) if is_json else yaml.safe_load(text)
    except OSError as error:
        raise OptionError(f"--config {path}: {error.strerror}; give a file such as --print-config prints") from None
    except (UnicodeDecodeError, json.JSONDecodeError, yaml.YAMLError, RecursionError) as error:
        kind = "JSON" if is_json else "YAML"
        raise OptionError(f"--config {path}: expected {kind}, got what does not parse: {error}") from None
    if not isinstance(values, dict):
        expected = "a JSON object of names and values" if is_json else "lines of `name: value`"
        raise OptionError(f"--config {path}: expected {expected}, got {type(values).__name__}")
    return values


def value_type(cls: type[Options], name: str) -> type:
    """Return the type of an option's value; for `X | None`, return X."""
    hashable: Any = cls  # mypy confuses a class with its instances, which have no hash
    hint = _hints(hashable)[name]
    value: type = next((each for each in get_args(hint) if each is not type(None)), hint)
    return value


_hints = cache(get_type_hints)


def _coerce(type_: type, value: Any) -> Any:
    """If the type is float, convert integers and strings that contain numbers; YAML reads 1e-3 as a string."""
    if type_ is float and isinstance(value, int | str) and not isinstance(value, bool):
        with suppress(ValueError):
            return float(value)
    return value


def _check(option_field: "dataclasses.Field[Any]", type_: Any, value: Any) -> None:
    """Raise an OptionError if a value has another type or is not allowed."""
    if value is None and option_field.default is None:
        return
    rules = option_field.metadata
    if not isinstance(value, type_) or (type_ is not bool and isinstance(value, bool)):
        expected = f"a value of type {type_.__name__}"
    elif rules["choices"] is not None and value not in rules["choices"]:
        expected = f"one of {', '.join(map(str, rules['choices']))}"
    elif rules["minimum"] is not None and not value >= rules["minimum"]:
        expected = f"{rules['minimum']} or more"
    elif type_ is float and not math.isfinite(value):
        expected = "a finite number"
    elif type_ in _MAXIMUM and value > (limit := _MAXIMUM[type_] if rules["maximum"] is None else rules["maximum"]):
        expected = f"{limit:,} or less"
    else:
        return
    raise OptionError(f"{option_field.name}: expected {expected}, got {value!r}")


def check_encoding(name: object) -> None:
    """Raise an OptionError if a name is neither empty nor that of a text encoding."""
    try:
        "".encode(name or "utf-8")  # type: ignore[arg-type]
    except (LookupError, TypeError, ValueError):
        raise OptionError(
            f"encoding: expected a text encoding of Python, such as utf-8, cp1252 or gbk, got {name!r}"
        ) from None
