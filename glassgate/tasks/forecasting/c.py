"""The C program of a forecasting run."""

from torch import nn

from glassgate.tasks.c.program import Parts, constants, numbers, strings, unsupported_error
from glassgate.tasks.forecasting.heads import median_index, normal_quantiles
from glassgate.tasks.forecasting.network import Forecaster
from glassgate.tasks.forecasting.task import Forecasting


def export(task: Forecasting) -> Parts:
    """Return the program of a forecasting run."""
    options, statistics, fitted, head = task.options, task.statistics, task.fitted, task.head
    if fitted["past"]:
        raise unsupported_error(task, "the covariates of the past", "train a run without --past")
    if head.can_sample and (options.head != "gaussian" or options.model == "recursive"):
        raise unsupported_error(
            task,
            f"the random paths of --head {options.head} with --model {options.model}",
            "train a run with --head quantiles, which needs no random numbers",
        )
    network = task.network
    assert isinstance(network, Forecaster)
    modules, embedding_size = dict[str, nn.Module](), network.embedding_size
    for name, part in network.parts().items():
        modules[name] = nn.Embedding.from_pretrained(part.detach()) if isinstance(part, nn.Parameter) else part
    levels = options.levels if head.has_quantiles else []
    names = list(fitted["series"])
    tables = [
        constants(
            SERIES=len(names),
            LOOK_BACK=options.steps_back,
            HORIZON=options.horizon,
            SEGMENT=options.segment,
            KNOWN=max(1, statistics.num_known),
            KNOWN_COUNT=statistics.num_known,
            SERIES_SIZE=max(1, embedding_size),
            SERIES_COUNT=embedding_size,
            DIRECTIONS=1 + options.bidirectional,
            HEAD_SIZE=head.size,
            LEVELS=len(levels),
            RESULT_SIZE=1 + max(head.size, len(levels)),
            MIDDLE=median_index(levels),
            NORMALIZE_LAST=options.normalize == "last",
            NORMALIZE_WINDOW=options.normalize == "window",
            LINEAR="linear" in modules,
            **{f"MODEL_{options.model.upper()}": 1},
        ),
        strings("series_names", names),
        numbers("shifts", (fitted["series"][name][0] for name in names)),
        numbers("scales", (fitted["series"][name][1] for name in names)),
    ]
    if options.head == "gaussian":
        tables += [constants(GAUSSIAN=1), numbers("deviations", normal_quantiles(levels))]
    reads = "the index of a series, the values of its look-back, and the covariates of each step up to the horizon"
    return Parts(modules, "forecast", tables, reads, "the value and the quantiles of each step")
