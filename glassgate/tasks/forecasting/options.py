"""The options of forecasting."""

from dataclasses import dataclass

from glassgate.tasks.data.series import MISSING, Schema
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import Options, option

MODELS = ("direct", "recursive", "segments")
HEADS = ("mse", "mae", "huber", "quantiles", "gaussian", "student-t", "negative-binomial")
NORMALIZE = ("last", "window", "none")


@dataclass(frozen=True, kw_only=True)
class ForecastingOptions(Options):
    """The options of forecasting.

    Raises:
        OptionError: parts that do not go together; see `Options`
    """

    data: str | None = option(None, "table of series, CSV, TSV or Parquet; without one, a made series", group="data")
    horizon: int = option(24, "steps to forecast", group="data", least=1, most=2**16)
    look_back: int = option(
        0, "steps that a forecast is made from; 0 for four times the horizon", group="data", least=0, most=2**20
    )
    target: str | None = option(
        None, "columns to forecast, with commas between; all that no other option names", group="data"
    )
    time: str | None = option(None, "column of the time stamps; detected if left out", group="data")
    series: str | None = option(
        None,
        "column of the series' names, where a table holds several below each other; detected if left out",
        group="data",
    )
    past: str | None = option(None, "columns of covariates that are known up to the present", group="data")
    known: str | None = option(None, "columns of covariates that are known ahead, too", group="data")
    static: str | None = option(None, "columns of what belongs to a series as a whole, numbers or texts", group="data")
    calendar: bool = option(False, "add hour, weekday and time of year as covariates known ahead", group="data")
    time_format: str = option("", "form of the time stamps, as strptime takes it; detected if left out", group="data")
    decimal: str | None = option(
        None, "decimal mark of the numbers; detected if left out", group="data", choices=(".", ",")
    )
    missing: str = option("error", "what to do about gaps; last: take the value before", group="data", choices=MISSING)
    season: int = option(
        0, "steps of a season, for the seasonal naive forecast; 0: by the frequency", group="data", least=0
    )
    train_steps: int = option(0, "steps to train on; 0 for all before dev and test", group="data", least=0)
    dev_steps: int = option(0, "steps after those, of dev; 0 for a tenth", group="data", least=0)
    test_steps: int = option(0, "steps after those, of test; 0 for a tenth", group="data", least=0)
    every: int = option(1, "steps between the origins of evaluation", group="data", least=1)

    bidirectional: bool = option(False, "read the past from both ends; only with the direct model")
    embedding_size: int = option(
        16, "numbers that stand for a series where there are several; 0 for none", least=0, most=2**16
    )
    model: str = option("direct", "all steps at once, step by step, or by segments", choices=MODELS)
    head: str = option(
        "mse",
        "what is predicted of a step: a value, quantiles or a distribution",
        choices=HEADS,
    )
    normalize: str = option(
        "last",
        "what each window is normalized by: its last value, mean and deviation, or nothing; counts never are",
        choices=NORMALIZE,
    )
    segment: int = option(24, "steps of a segment", least=1, most=2**16)
    quantiles: str = option("0.1,0.5,0.9", "quantiles of a forecast, with commas between, for heads that give any")
    samples: int = option(100, "paths that are drawn where quantiles have no formula", least=2, most=10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional and self.model != "direct":
            raise OptionError(
                f"bidirectional: expected one direction for the {self.model} model, which goes on from where the past "
                "ends, got two; leave the option out, or choose --model direct"
            )
        if self.model == "recursive" and self.past:
            raise OptionError(
                "past: the recursive model needs covariates at each step that it forecasts, and past ones end before; "
                "choose --model direct or segments, or name with --known what is known ahead"
            )
        if self.model == "segments" and self.steps_back % self.segment:
            raise OptionError(
                f"look_back: expected a multiple of the segment, {self.segment}, got {self.steps_back}; choose another "
                "--look-back or --segment"
            )
        if not self.levels or not all(0 < level < 1 for level in self.levels):
            raise OptionError(
                f"quantiles: expected numbers between 0 and 1 with commas between, got {self.quantiles!r}"
            )

    @property
    def steps_back(self) -> int:
        """Steps that a forecast is made from."""
        return self.look_back or 4 * self.horizon

    @property
    def levels(self) -> list[float]:
        """The quantiles, rising; none if they are no numbers."""
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
