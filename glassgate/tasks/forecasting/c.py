"""The C program of a forecasting run."""

from torch import nn

from glassgate.tasks.c.parts import Parts, unsupported_error
from glassgate.tasks.c.source import constants, definitions, numbers, quoted, strings, template
from glassgate.tasks.forecasting.heads import median_index, normal_quantiles
from glassgate.tasks.forecasting.network import Direct, Forecaster, Recursive, Segments
from glassgate.tasks.forecasting.series import Frequency
from glassgate.tasks.forecasting.task import Forecasting

_DAY = 24 * 3600 * 1_000_000


def export(task: Forecasting) -> Parts:
    """Return the program of a forecasting run."""
    options, statistics, fitted, head = task.options, task.statistics, task.fitted, task.head
    if fitted["known"] or fitted["past"] or fitted["static"]:
        raise unsupported_error(task, "the covariates", "train a run without --known, --past and --static")
    if head.can_sample and (options.head != "gaussian" or options.model == "recursive"):
        raise unsupported_error(
            task,
            f"the random paths of --head {options.head} with --model {options.model}",
            "train a run with --head quantiles, which needs no random numbers",
        )
    if statistics.frequency.zone:
        raise unsupported_error(
            task, "time stamps with a time zone", "train on times without offsets, or export with --to onnx"
        )
    network = task.network
    assert isinstance(network, Forecaster)
    modules, embedding_size = _modules(network), network.embedding_size
    frequency = statistics.frequency
    levels = options.levels if head.has_quantiles else []
    names = list(fitted["series"])
    code = [
        definitions(
            COUNT=f"{frequency.count}LL",
            TIME_NAME=quoted(options.time or ""),
            EXAMPLE_TIME=quoted("2024-01-31 15:00:00" if frequency.has_dates else "17"),
            FREQUENCY=quoted(str(frequency)),
            PI="3.14159265358979323846",
        ),
        constants(
            SERIES=len(names),
            LOOK_BACK=options.steps_back,
            HORIZON=options.horizon,
            SEGMENT=options.segment,
            KNOWN=max(1, statistics.num_known),
            KNOWN_COUNT=statistics.num_known,
            CALENDAR=statistics.num_known,
            SERIES_SIZE=max(1, embedding_size),
            SERIES_COUNT=embedding_size,
            DIRECTIONS=1 + options.bidirectional,
            HEAD_SIZE=head.size,
            LEVELS=len(levels),
            RESULT_SIZE=1 + max(head.size, len(levels)),
            MIDDLE=median_index(levels),
            NORMALIZE_LAST=options.normalize == "last",
            NORMALIZE_WINDOW=options.normalize == "window",
            LAST_DAY=frequency.last_day,
            SHOWS_CLOCK=frequency.unit == "time" and frequency.count % _DAY != 0,
        ),
        strings("series_names", names),
        numbers("shifts", (fitted["series"][name][0] for name in names)),
        numbers("scales", (fitted["series"][name][1] for name in names)),
    ]
    if options.head == "gaussian":
        code.append(numbers("deviations", normal_quantiles(levels)))
    flags = _flags(frequency) | {
        options.model.upper(): True,
        "GAUSSIAN": options.head == "gaussian",
        "CALENDAR": statistics.num_known > 0,
        "SEVERAL": "series" in modules,
        "LINEAR": "linear" in modules,
    }
    text = "\n".join([*code, template("forecasting.c", flags)])
    return Parts(
        modules,
        text,
        "a table with a header, a row per time stamp and a column per series",
        "the forecast of each series: time stamp, value and quantiles",
        {"series": "vectors"},
    )


def _modules(network: Forecaster) -> dict[str, nn.Module]:
    """The modules of the network, by their names in the program."""
    modules: dict[str, nn.Module] = {}
    match network:
        case Direct():
            modules |= {"encoder": network.encoder, "steps": network.steps}
        case Recursive():
            modules |= {"encoder": network.encoder, "steps": network.step}
        case Segments():
            places = nn.Embedding.from_pretrained(network.places.detach())
            modules |= {"encoder": network.encoder, "steps": network.segment, "embed": network.embed, "places": places}
    if isinstance(network, Direct | Segments) and network.sizes.known:
        modules["ahead"] = network.ahead
    if isinstance(network, Direct) and network.linear is not None:
        modules["linear"] = network.linear
    if network.series is not None:
        modules["series"] = network.series
    return modules


def _flags(frequency: Frequency) -> dict[str, bool]:
    """The flags of the template that depend on the frequency."""
    return {
        "DATED": frequency.has_dates,
        "EVEN": frequency.unit in ("time", "step"),
        "MONTHS": frequency.unit == "month",
        "WEEKDAYS_ONLY": frequency.unit == "weekday",
    }
