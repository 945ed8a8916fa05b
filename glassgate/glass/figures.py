"""The plots of a report as SVG, each with a caption, from a study."""

import math
from typing import NamedTuple

import numpy as np

from glassgate.glass.gradients import VANISHED, vanishing_lag
from glassgate.glass.languages import clauses, say, sentences
from glassgate.glass.study import Direction, Flow, Passage, Study
from glassgate.glass.svg import Axis, Plot
from glassgate.glass.wording import capitalised, fixed, named, percent, place, rounded, steps

# The width of the plot of a series. In page.css, the strip of steps below it has the same margins.
SERIES_WIDTH = 640
# The maximum number of channels of a series that are drawn.
_MAX_CHANNELS = 12


class Figure(NamedTuple):
    """A plot.

    Attributes:
        svg: the picture
        caption: the sentence beneath it
        measure: the name of a measure and of its gate or state, for example ("saturation", "f"). The page adds the
            value of the selected unit to the caption
    """

    svg: str
    caption: str
    measure: tuple[str, str] | None = None


def saturation(direction: Direction) -> list[Figure]:
    """A plot for each gate. One dot per unit shows how often it is closed and open (Karpathy et al. 2015)."""
    figures = []
    for name, each in direction.saturation.items():
        low, high = each.low.numpy(), each.high.numpy()
        signed = direction.kinds[name] == "signed"
        below, above = say("words.below", value=fixed(-0.9, 1) if signed else "0.1"), say("words.above", value="0.9")
        sentence = say(
            "saturation.sentence",
            name=name,
            below=below,
            fraction_below=percent(float(low.mean())),
            above=above,
            fraction_above=percent(float(high.mean())),
        )
        always = [
            say("saturation.always", count=int((fraction > 0.9).sum()), where=where)
            for fraction, where in ((low, below), (high, above))
            if (fraction > 0.9).any()
        ]
        sentence = sentences(sentence, say("words.sentence", words=capitalised(clauses(*always))) if always else "")
        ticks = [(fraction, percent(fraction) if fraction else "0") for fraction in (0.0, 0.5, 1.0)]
        plot = Plot(
            Axis(0, 1, say("saturation.axis", where=below), ticks=ticks),
            Axis(0, 1, say("saturation.axis", where=above), ticks=ticks),
            233,
            224,
            sentence,
        )
        plot.rule(0, 1, 1, 0)
        plot.dots(low.tolist(), high.tolist(), "signed" if signed else "gate", units=range(len(low)))
        plot.text(0.98, 0.93, name, "letter", "end")
        figures.append(Figure(plot.svg(), sentence, ("saturation", name)))
    return figures


def half_life_range(study: Study) -> tuple[float, float]:
    """The range of all half-lives on the page."""
    lives = [life for run in study.on_page for each in run.directions for life in each.half_life.values()]
    values = np.concatenate([np.ones(1), *lives])
    finite = values[np.isfinite(values) & (values > 0)]
    low = min(1.0, max(0.01, 10 ** math.floor(math.log10(finite.min()))))
    return low, min(1e5, max(10.0, 10 ** math.ceil(math.log10(finite.max()))))


def half_lives(direction: Direction, state: str, limits: tuple[float, float]) -> Figure:
    """The half-life of every unit in steps, in ascending order. `limits` are the ends of the vertical axis."""
    order = np.argsort(direction.half_life[state], kind="stable")
    values = direction.half_life[state][order]
    low, high = limits
    median = float(np.median(values))
    middle, longest, shortest = (_half_life_text(each) for each in (median, float(values[-1]), float(values[0])))
    sentence = say("memory.half_lives", state=state, median=middle, longest=longest, shortest=shortest)
    plot = Plot(
        Axis(0, max(1, len(values) - 1), say("memory.sorted_units"), whole=True),
        Axis(low, high, say("memory.half_life_axis"), log=True),
        490,
        250,
        sentence,
    )
    plot.rule(0, min(median, high), len(values), min(median, high))
    plot.text(0, min(median, high), say("memory.median", half_life=middle), up=5)
    plot.dots(range(len(values)), values.clip(low, high).tolist(), "state", 2.5, order.tolist())
    return Figure(plot.svg(), sentence, ("half_life", state))


def _half_life_text(value: float) -> str:
    return say("words.infinite") if value == math.inf else steps(value)


def memory_range(study: Study) -> tuple[int, float]:
    """The last step and the largest fraction that the plots of all memories on the page show."""
    memories = [memory for run in study.on_page for each in run.directions for memory in each.memory.values()]
    last, top = 1, 1.0
    for each in memories:
        gone = each.steps[each.high < VANISHED]
        last = max(last, max(int(gone[0]), 10) if len(gone) else int(each.steps[-1]))
        top = max(top, min(2.0, float(each.high.nan_to_num().max())))
    return last, top


def memory(direction: Direction, state: str, limits: tuple[int, float]) -> Figure:
    """The fraction of a state that remains after k steps. `limits` are the last step and the largest fraction."""
    each = direction.memory[state]
    ks, median = each.steps.tolist(), each.median.tolist()
    half = next((k for k, value in zip(ks, median, strict=True) if value < 0.5), None)
    high_half = next((k for k, value in zip(ks, each.high.tolist(), strict=True) if value < 0.5), None)
    longest = steps(ks[-1])
    sentence = sentences(
        say("memory.remaining", state=state),
        say("memory.median_falls", steps=steps(half))
        if half is not None
        else say("memory.median_stays", steps=longest),
        say("memory.high_falls", steps=steps(high_half))
        if high_half is not None
        else say("memory.high_stays", steps=longest),
    )
    last, top = limits
    shown = sum(k <= last for k in ks)
    x, y = Axis(0, last, say("axis.steps_k"), whole=True), Axis(0, top, say("memory.fraction", state=state))
    plot = Plot(x, y, 490, 250, sentence)
    plot.band(ks[:shown], each.low.tolist()[:shown], each.high.tolist()[:shown], "state")
    plot.line(ks[:shown], median[:shown], "state")
    plot.text(last, top, say("memory.band"), "tick", "end", -14)
    return Figure(plot.svg(), sentence)


def flow_range(study: Study) -> tuple[int, float, float]:
    """The longest lag, and the smallest and largest norm that the plots of all gradients on the page show."""
    flows = [flow for run in study.on_page for each in run.directions for flow in each.flow.values()]
    curves = [curve for each in flows for curve in (each.quantiles, each.initial_median, each.direct_path)]
    norms = np.concatenate([np.ravel(curve) for curve in curves if curve is not None] or [np.ones(1)])
    positive = norms[np.isfinite(norms) & (norms > 0)]
    high = 10 ** math.ceil(math.log10(positive.max())) if len(positive) else 1.0
    low = max(10 ** math.floor(math.log10(positive.min())) if len(positive) else 1e-6, high * 1e-10)
    return max((each.lags[-1] for each in flows), default=1), low, high


def flow(direction: Direction, state: str, limits: tuple[int, float, float]) -> Figure:
    """The gradient by lag: after training, before training, and along the direct path only.

    Args:
        direction, state: the direction and the name of the state
        limits: the last lag, and the ends of the vertical axis
    """
    each, (last, low, high) = direction.flow[state], limits
    sentence = flow_sentence(state, each)
    plot = Plot(
        Axis(0, max(1, last), say("axis.lag"), whole=True),
        Axis(low, high, say("flow.norm", state=state), log=True),
        490,
        280,
        sentence,
    )
    start = float(each.quantiles[0][0])
    if low < VANISHED * start < high:
        plot.rule(0, VANISHED * start, last, VANISHED * start)
        plot.text(last, VANISHED * start, say("flow.vanished"), anchor="end", up=4)
    plot.band(each.lags, each.quantiles[1].tolist(), each.quantiles[2].tolist(), "flow")
    if each.initial_median is not None:
        plot.line(each.lags, each.initial_median.tolist(), "before")
    plot.line(each.lags, each.quantiles[0].tolist(), "flow")
    if each.direct_path is not None:
        plot.line(each.lags, [value if value >= low else math.nan for value in each.direct_path], "direct-path")
    return Figure(plot.svg(), sentence)


def flow_sentence(state: str, flow: Flow) -> str:
    """Describe how the gradient falls with the lag."""

    def course(curve: np.ndarray | None) -> str:
        if curve is None:
            return ""
        lag = vanishing_lag(flow.lags, curve, VANISHED)
        return say("flow.falls", steps=steps(lag)) if lag else say("flow.stays", steps=steps(flow.lags[-1]))

    before, direct = course(flow.initial_median), course(flow.direct_path)
    return sentences(
        say("flow.sentence", state=state, course=course(flow.quantiles[0])),
        say("flow.sentence_before", course=before) if before else "",
        say("flow.sentence_direct", course=direct) if direct else "",
    )


def windows(study: Study) -> list[Figure]:
    """The increase of the loss when all states are held at their means in each window of steps."""
    if not study.windows:
        return []
    total = study.starts[-1]
    bars = [
        (study.starts[each.passage] + each.start, study.starts[each.passage] + each.stop, each.loss)
        for each in study.windows
    ]
    losses = [0.0, *(each.loss for run in study.on_page for each in run.windows)]
    low, high = min(losses), max(losses)
    most = max(study.windows, key=lambda each: each.loss)
    where = place(most.start, most.stop, most.passage if len(study.passages) > 1 else None)
    cost = say("words.amount", number=rounded(most.loss), unit=study.unit)
    sentence = say("causes.windows", steps=steps(round(total / len(bars))), place=where, loss=cost)
    plot = Plot(
        Axis(0, total, say("axis.step"), whole=True),
        Axis(low, high or 1.0, say("causes.increase", unit=study.unit)),
        490,
        280,
        sentence,
        time=(0, total),
    )
    for first, stop, loss in bars:
        plot.bar(first, stop, loss, "low" if loss < 0 else "high")
    return [Figure(plot.svg(), sentence)]


def training(study: Study) -> list[Figure]:
    """The curves of the training log: loss, score, and the statistics of each layer."""
    rows = study.training
    if not rows:
        return []
    figures = []
    groups = [("loss", ["train_loss", "dev_loss"]), (study.monitor, [f"train_{study.monitor}", f"dev_{study.monitor}"])]
    seen = sorted({name.split("/")[0] for row in rows for name in row if "/" in name})
    groups += [(group, sorted({n for row in rows for n in row if n.startswith(f"{group}/")})) for group in seen]
    last = max(row["step"] for run in study.on_page for row in run.training)
    for title, names in groups:
        curves = [(name, [(row["step"], row[name]) for row in rows if name in row]) for name in names]
        curves = [(name, points) for name, points in curves if points]
        if not curves:
            continue
        logged = [row[name] for run in study.on_page for row in run.training for name in names if name in row]
        values = [value for value in logged if math.isfinite(value)] or [0.0]
        low, high = min(values), max(values)
        margin = 0.08 * ((high - low) or abs(high) or 1.0)
        if all(len(points) == 1 for _, points in curves):
            continue  # one point needs no curve: the introduction of the section states its value
        ends = [f"{_curve_name(name)} {rounded(points[-1][1], 4)}" for name, points in curves]
        words = named("score", title)
        sentence = capitalised(say("training.ends", curve=words, ends=clauses(*ends)))
        legend = [(f"k{k % 6}", _curve_name(name)) for k, (name, _) in enumerate(curves)]
        x, y = Axis(0, last, say("training.axis"), whole=True), Axis(low - margin, high + margin, words)
        plot = Plot(x, y, 340, 220, sentence, legend=legend)
        for k, (_, points) in enumerate(curves):
            kind = f"k{k % 6}"
            plot.line([x for x, _ in points], [y for _, y in points], kind)
            if len(points) < 40:
                plot.dots([x for x, _ in points], [y for _, y in points], kind, 2)
        figures.append(Figure(plot.svg(), sentence))
    return figures


def _curve_name(name: str) -> str:
    """The name of a curve of the training log: the layer after a slash, or the data before an underscore."""
    return name.split("/")[1] if "/" in name else named("curve", name.split("_")[0])


def series(study: Study, number: int, start: int) -> Figure | None:
    """The channels of a passage of a series, and its forecast. If there are several channels, each is standardised."""
    passage = study.passages[number]
    if passage.series is None:
        return None
    values, forecasts = np.asarray(passage.series, dtype=float), passage.forecasts
    channel_count, length, rows_per_step = values.shape[1], len(passage.steps), passage.rows_per_step
    shown, single = _drawn_channels(values), channel_count == 1
    low, high = _series_range(study)
    end = max(length, *(each.position + 0.5 / rows_per_step for each in forecasts)) if forecasts else max(1, length)
    names = list(passage.names) or [say("words.channel", number=k + 1) for k in range(channel_count)]
    legend = [(_channel_kind(k), name) for k, name in enumerate(names[: shown.shape[1]])] if not single else []
    legend += (
        [("thin k0", say("series.true_values", name=names[0])), ("forecast", say("series.forecast"))]
        if forecasts and single
        else []
    )
    sentence = _series_sentence(passage, names)
    plot = Plot(
        Axis(0, end, "" if passage.times else say("axis.step"), ticks=_dates(passage, end), whole=True),
        Axis(low, high, names[0] if single else say("series.deviations")),
        SERIES_WIDTH,
        200,
        sentence,
        time=(start, length),
        legend=legend,
    )
    xs = [(row + 0.5) / rows_per_step for row in range(len(shown))]
    for channel in range(shown.shape[1]):
        plot.line(xs, shown[:, channel].tolist(), _channel_kind(channel))
    if forecasts and single:
        positions = [each.position for each in forecasts]
        plot.line(positions, [math.nan if each.target is None else each.target for each in forecasts], "thin k0")
        plot.line(positions, [each.value for each in forecasts], "forecast")
    return Figure(plot.svg(), sentence)


def _channel_kind(channel: int) -> str:
    """The CSS class of a channel: one of six colours, and a dashed line for the second six."""
    return f"thin k{channel % 6}{' second' if channel >= 6 else ''}"


def _drawn_channels(series: np.ndarray) -> np.ndarray:
    """The channels that are drawn, (L, C). Several channels are each in units of their standard deviation."""
    values = np.asarray(series, dtype=float)[:, :_MAX_CHANNELS]
    return values if series.shape[1] == 1 else (values - values.mean(0)) / np.maximum(values.std(0), 1e-9)


def _series_range(study: Study) -> tuple[float, float]:
    """The range of all series of a study, so that their plots have the same scale."""
    numbers = []
    for passage in (passage for run in study.on_page for passage in run.passages):
        if passage.series is not None:
            numbers.append(_drawn_channels(passage.series).ravel())
            if passage.series.shape[1] == 1:
                drawn = [[each.value, each.target] for each in passage.forecasts]
                numbers.append(np.array(drawn, dtype=float).ravel())
    values = np.concatenate(numbers)
    finite = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    margin = 0.08 * (float(np.ptp(finite)) or 1.0)
    return float(finite.min()) - margin, float(finite.max()) + margin


def _series_sentence(passage: Passage, names: list[str]) -> str:
    channel_count, rows_per_step, forecasts = len(names), passage.rows_per_step, passage.forecasts
    length = steps(len(passage.steps))
    if rows_per_step > 1:
        length = say("series.segments", steps=length, count=rows_per_step)
    content = say("series.channels", count=channel_count) if channel_count > 1 else names[0]
    drawn = say("series.drawn", count=_MAX_CHANNELS) if channel_count > _MAX_CHANNELS else ""
    errors = [abs(each.value - each.target) for each in forecasts if each.target is not None]
    ahead = steps(len(forecasts))
    return sentences(
        say("series.sentence", steps=length, content=content, drawn=drawn),
        say("series.times", first=passage.times[0], last=passage.times[-1]) if passage.times else "",
        say("series.error", steps=ahead, error=rounded(float(np.mean(errors)))) if errors else "",
        say("series.follows", steps=ahead) if forecasts and not errors else "",
    )


def _dates(passage: Passage, end: float) -> list[tuple[float, str]]:
    """About five time stamps along the axis, without the seconds if they are zero and without a repeated day."""
    if not passage.times:
        return []
    last = min(len(passage.times) - 1, int(end * passage.rows_per_step) - 1)
    rows = sorted({round(k * last / 4) for k in range(5)})
    stamps = [passage.times[row].removesuffix(":00").partition(" ") for row in rows]
    days = [day for day, _, _ in stamps]
    texts = [
        clock if clock and day == before else f"{day} {clock}".strip()
        for (day, _, clock), before in zip(stamps, ["", *days], strict=False)
    ]
    return [((row + 0.5) / passage.rows_per_step, text) for row, text in zip(rows, texts, strict=True)]
