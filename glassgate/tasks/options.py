"""Options: one frozen dataclass per task. The command line, YAML and JSON files and saved runs use the same names."""

import dataclasses
import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

import yaml

from glassgate.tasks import cells
from glassgate.tasks.errors import OptionError

_LARGEST_INTEGER = 2**31 - 1  # for options without an explicit limit: larger ones would overflow


def option(
    default: Any,
    help: str,
    *,
    group: str = "model",
    choices: tuple[Any, ...] | None = None,
    least: float | None = None,
    most: float | None = None,
    unset: str = "",
    metavar: str = "NAME",
    former: str = "",
) -> Any:
    """Declare an option: a dataclass field with its description and its allowed values.

    Args:
        default: the value if the option is not given
        help: one line for users
        group: the heading in the help: "data", "model" or "training"
        choices: all allowed values; strings are lower case and accepted in any case
        least: the smallest allowed value
        most: the largest allowed value
        unset: the behaviour if the option is not given, for the help; empty if the default value is the behaviour
        metavar: the name of a text value in the help
        former: the name in earlier versions, which files of options and run folders may contain
    """
    rules = {"help": help, "group": group, "choices": choices, "least": least, "most": most, "unset": unset}
    return field(default=default, metadata={**rules, "metavar": metavar, "former": former})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of every task.

    Attributes:
        common: the options that the short help shows

    Raises:
        OptionError: a value of the wrong type or out of its range
    """

    common: ClassVar[tuple[str, ...]] = ("data", "dev", "test", "cell", "hidden_size", "epochs", "learning_rate")

    data: str | None = option(None, "training file", group="data", unset="none; required", metavar="FILE")
    dev: str | None = option(
        None, "file to select the best epoch by", group="data", unset="part of --data; none with --test", metavar="FILE"
    )
    test: str | None = option(
        None, "file to score after training", group="data", unset="part of --data; none with --dev", metavar="FILE"
    )
    held_out: float = option(
        0.1, "fraction of --data held out as dev, and again as test", group="data", least=0, most=0.4
    )

    cell: Any = option("lstm", cells.HELP)  # noqa: RUF009
    hidden_size: int = option(128, "units per direction", least=1, most=2**16)
    num_layers: int = option(1, "number of recurrent layers", least=1, most=1000)
    bidirectional: bool = option(True, "read sequences from both ends")
    init: str = option("xavier_orthogonal", "initialisation of the weights", choices=("xavier_orthogonal", "torch"))
    embedding_size: int = option(64, "size of the vector of a token", least=1, most=2**16)
    dropout: float = option(0.0, "dropout after the embedding and after each layer", least=0, most=1)

    epochs: int = option(
        0,
        "passes over the training data",
        group="training",
        least=0,
        unset="by data size; more while the dev score improves",
    )
    max_epochs: int = option(
        0,
        "maximum number of epochs; training continues while the dev score improves",
        group="training",
        least=0,
        unset="--epochs, or four times the number chosen by data size",
    )
    batch_size: int = option(0, "examples per step", group="training", least=0, unset="by data size")
    learning_rate: float = option(3e-3, "peak learning rate of AdamW", group="training", least=0)
    lr_find: bool = option(False, "find the learning rate first, in 100 steps", group="training")
    warmup: float = option(0.05, "fraction of the steps in which the rate rises", group="training", least=0, most=1)
    weight_decay: float = option(0.01, "weight decay of AdamW", group="training", least=0)
    clip: float = option(1.0, "clip the norm of the gradient; 0 disables it", group="training", least=0)
    accumulate: int = option(1, "batches per optimizer step", group="training", least=1)
    patience: int = option(0, "stop after N epochs without a better score", group="training", least=0, unset="off")
    precision: str = option(
        "32-true",
        "floating-point precision; 16-mixed needs a GPU",
        group="training",
        choices=("32-true", "bf16-mixed", "16-mixed"),
    )
    device: str = option("auto", "device to train on", group="training", choices=("auto", "cpu", "cuda", "mps"))
    threads: int = option(0, "CPU threads", group="training", least=0, most=1024, unset="torch's choice")
    seed: int = option(1, "seed of weights, order and dropout", group="training", least=0, most=2**63 - 1)
    lyapunov: int = option(
        0, "after each epoch, log Lyapunov exponents over N steps of dev data", group="training", least=0, unset="off"
    )
    log_every: int = option(50, "steps from one row of the logs to the next", group="training", least=1)
    save_every: float = option(20.0, "seconds from one checkpoint to the next", group="training", least=0)

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if each.name == "cell":
                object.__setattr__(self, "cell", cells.check(value))
                continue
            if each.metadata["choices"] and isinstance(value, str):
                object.__setattr__(self, each.name, value.lower())
            _check(each, value_type(type(self), each.name), getattr(self, each.name))

    def rate_for(self, batch_size: int) -> float:
        """Return the peak learning rate for a batch size."""
        return self.learning_rate

    @property
    def training_file(self) -> str | None:
        """The file to train on, None for built-in data."""
        return self.data

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build options from names and values, for example those of a file.

        Raises:
            OptionError: an unknown name, a wrong type, a value out of range
        """
        names = [each.name for each in dataclasses.fields(cls)]
        former = {each.metadata["former"]: each.name for each in dataclasses.fields(cls) if each.metadata["former"]}
        values = {former.get(name, name): value for name, value in values.items()}
        for name in values:
            if name not in names:
                near = difflib.get_close_matches(str(name), names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(names)}"
                raise OptionError(f"unknown option {name!r}; {hint}")
        return cls(**{name: _coerce(value_type(cls, name), value) for name, value in values.items()})

    def to_mapping(self) -> dict[str, Any]:
        """Return all names and values, ready for JSON and YAML."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return values | {"cell": cells.as_json(self.cell)}

    def to_yaml(self) -> str:
        """Return all names and values as a YAML file, each with its explanation."""
        values, lines = self.to_mapping(), []
        for each in dataclasses.fields(self):
            value = values[each.name]
            is_cell = isinstance(value, dict)  # JSON, which is YAML on one line
            text = f"{each.name}: {json.dumps(value)}" if is_cell else yaml.safe_dump({each.name: value}).strip()
            lines.append(f"{text}  # {each.metadata['help']}")
        return "\n".join(lines) + "\n"


def changed(name: str, default: Any, **rules: Any) -> Any:
    """Declare an option of `Options` again for one task, with another default.

    Args:
        name: the name of the option
        default: the value if the option is not given
        rules: other changes, by the arguments of `option`
    """
    return field(default=default, metadata={**Options.__dataclass_fields__[name].metadata, **rules})


def read_config(path: str | Path) -> dict[str, Any]:
    """Read names and values from a YAML or JSON file.

    Raises:
        OptionError: the file is missing, does not parse, or is not a mapping
    """
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
    """Return the type of an option's value; of `X | None`, return X."""
    hint = get_type_hints(cls)[name]
    if get_origin(hint) in (Union, UnionType):
        return next(each for each in get_args(hint) if each is not type(None))
    return hint


def _coerce(kind: type, value: Any) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is float and isinstance(value, str):  # YAML takes 1e-3 for a string
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _check(declared: "dataclasses.Field[Any]", kind: Any, value: Any) -> None:
    if value is None and declared.default is None:
        return
    rules = declared.metadata
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        expected = f"a value of type {kind.__name__}"
    elif rules["choices"] is not None and value not in rules["choices"]:
        expected = f"one of {', '.join(map(str, rules['choices']))}"
    elif rules["least"] is not None and not value >= rules["least"]:
        expected = f"{rules['least']} or more"
    elif kind is float and not math.isfinite(value):
        expected = "a finite number"
    elif kind in (int, float) and not value <= (maximum := _upper_limit(kind, rules["most"])):
        expected = f"{maximum:,} or less"
    else:
        return
    raise OptionError(f"{declared.name}: expected {expected}, got {value!r}")


def _upper_limit(kind: type, limit: float | None) -> float:
    return limit if limit is not None else _LARGEST_INTEGER if kind is int else math.inf
