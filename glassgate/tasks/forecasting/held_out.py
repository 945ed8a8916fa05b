"""The steps of series that are held out as dev and test, and the minimum lengths of series and parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from glassgate.tasks.data.held_out import LastSteps, held_out_size
from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.series import Series
from glassgate.tasks.forecasting.statistics import season_of


@dataclass(frozen=True)
class LastHorizons(LastSteps[Series]):
    """Holds out the last steps of each series. By default, dev and test each get a fraction, but at least one horizon.

    The dev and the test part begin with the steps that their first forecast reads. These steps also belong to the
    previous part.
    """

    options: ForecastingOptions

    def sizes(self, example: Series, fraction: float) -> tuple[int, int, int]:
        """Return the numbers of train, dev and test steps, as set by the options or else by the fraction.

        Raises:
            OptionError: a part is too short for a window
            DataError: the series is shorter than the given sizes
        """
        options = self.options
        back, horizon = options.steps_back, options.horizon
        default = max(horizon, held_out_size(len(example), fraction)) if fraction else 0
        dev, test = options.dev_steps or default, options.test_steps or default
        train = options.train_steps or len(example) - dev - test
        if any(0 < steps < horizon for steps in (dev, test)) or train < back + horizon:
            raise OptionError(
                f"horizon: expected at least {back + horizon} training steps (look-back + horizon), {horizon} dev "
                f"steps and {horizon} test steps, got {max(0, train)} training, {dev} dev and {test} test steps in "
                f"series {example.name!r} of {len(example)} steps; choose a shorter --horizon or --look-back"
            )
        check_length(example, train + dev + test, options)
        return train, dev, test

    def overlap(self, examples: Sequence[Series], train_sizes: Sequence[int]) -> int:
        """Return the number of steps before an origin that the model or the seasonal naive forecast reads."""
        return max(self.options.steps_back, season_of(examples, self.options, min(train_sizes)))


def check_length(series: Series, min_steps: int, options: ForecastingOptions, reason: str = "") -> None:
    """Check that a series has enough steps.

    Args:
        reason: appended to the message, to explain why more steps than look-back + horizon are required

    Raises:
        DataError: the series has fewer than `min_steps` steps
    """
    if len(series) < min_steps:
        raise series.fault(
            f"expected {min_steps} steps or more for a look-back of {options.steps_back} and a horizon of "
            f"{options.horizon}, got {len(series)}{reason}; give a longer series, or choose a shorter "
            "--horizon or --look-back"
        )
