"""The options of forecasting."""

from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.series import MISSING, Schema
from glassgate.tasks.options import Options, option, override

MODELS = ("direct", "recursive", "segments")
"""The networks: they forecast all steps at once, step by step, or by segments."""
HEADS = ("mse", "mae", "huber", "quantiles", "gaussian", "student-t", "negative-binomial")
"""The output layers of the network. Each has its own loss."""
NORMALIZATIONS = ("last", "window", "none")
"""The normalisations of a window: by its last value, by its mean and standard deviation, or none."""


@dataclass(frozen=True, kw_only=True)
class ForecastingOptions(Options):
    """The options of forecasting."""

    common: ClassVar = (*Options.common, "horizon", "target")
    file_options: ClassVar = (*Options.file_options, "time", "series", "time_format", "decimal", "missing")

    data: str | None = override("data", None, help="table of series")
    horizon: int = option(24, "number of steps to forecast", group="data", minimum=1, maximum=2**16)
    look_back: int = option(
        0, "steps of history per forecast", group="data", minimum=0, maximum=2**20, if_unset="four times the horizon"
    )
    target: str | None = option(
        None, "columns to forecast, separated by commas", group="data", if_unset="all others", metavar="NAMES"
    )
    time: str | None = option(None, "column of the time stamps", group="data", if_unset="detected")
    series: str | None = option(None, "column of the series' names in a long table", group="data", if_unset="detected")
    past: str | None = option(
        None, "columns of covariates known up to the present", group="data", if_unset="none", metavar="NAMES"
    )
    known: str | None = option(
        None, "columns of covariates known ahead", group="data", if_unset="none", metavar="NAMES"
    )
    static: str | None = option(
        None, "columns of attributes of a whole series", group="data", if_unset="none", metavar="NAMES"
    )
    calendar: bool = option(False, "add hour, weekday and time of year as covariates known ahead", group="data")
    time_format: str = option(
        "", "strptime format of the time stamps", group="data", if_unset="detected", metavar="FORMAT"
    )
    decimal: str | None = option(
        None, "decimal mark of the numbers", group="data", choices=(".", ","), if_unset="detected"
    )
    missing: str = option("error", "treatment of gaps; 'last' repeats the last value", group="data", choices=MISSING)
    season: int = option(
        0, "steps per season of the seasonal naive forecast", group="data", minimum=0, if_unset="by the frequency"
    )
    train_steps: int = option(0, "steps to train on", group="data", minimum=0, if_unset="all others")
    dev_steps: int = option(
        0, "steps of dev, after the training steps", group="data", minimum=0, if_unset="the fraction --held-out"
    )
    test_steps: int = option(
        0, "steps of test, after the dev steps", group="data", minimum=0, if_unset="the fraction --held-out"
    )
    every: int = option(1, "steps from one evaluated origin to the next", group="data", minimum=1)

    bidirectional: bool = override("bidirectional", False, help="read the past from both ends (direct model)")
    embedding_size: int = override(
        "embedding_size", 16, help="size of the vector of a series; 0 disables it", minimum=0
    )
    model: str = option("direct", "all steps at once, step by step, or by segments", choices=MODELS)
    head: str = option("mse", "loss and output: a value, quantiles or a distribution", choices=HEADS)
    normalize: str = option("last", "normalisation of a window; unused with negative-binomial", choices=NORMALIZATIONS)
    linear: bool = option(True, "add a linear map of the past values to the forecast (direct model)")
    ridge: bool = option(
        True,
        "average the trained network with a ridge regression, by a weight that dev data determines (with --linear)",
    )
    segment: int = option(24, "steps of a segment", minimum=1, maximum=2**16)
    quantiles: str = option("0.1,0.5,0.9", "quantiles of a forecast, separated by commas", metavar="X,X")
    samples: int = option(100, "sampled paths for heads without a quantile formula", minimum=2, maximum=10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional and self.model != "direct":
            raise OptionError(
                f"bidirectional: expected one direction for the {self.model} model, which continues where the past "
                "ends, got two; leave the option out, or choose --model direct"
            )
        if self.model == "recursive" and self.past:
            raise OptionError(
                "past: the recursive model needs covariates at each step that it forecasts, where those of --past are "
                "unknown; choose --model direct or segments, or name covariates that are known ahead with --known"
            )
        if self.model == "segments" and self.steps_back % self.segment:
            raise OptionError(
                f"look_back: expected a multiple of the segment, {self.segment}, got {self.steps_back}; choose another "
                "--look-back or --segment"
            )
        if not self.levels or not all(0 < level < 1 for level in self.levels):
            raise OptionError(
                f"quantiles: expected numbers between 0 and 1, separated by commas, got {self.quantiles!r}"
            )

    @property
    def steps_back(self) -> int:
        """The number of past steps that a forecast reads."""
        return self.look_back or 4 * self.horizon

    @property
    def levels(self) -> list[float]:
        """The levels of the quantiles, ascending; an empty list if the option is not a list of numbers."""
        try:
            return sorted({float(each) for each in self.quantiles.split(",")})
        except ValueError:
            return []

    @property
    def schema(self) -> Schema:
        """The roles of the columns of a table."""
        return Schema(
            _names(self.target), self.time, self.series, _names(self.past), _names(self.known), _names(self.static),
            self.time_format, self.missing, self.decimal or "",
        )  # fmt: skip


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()
