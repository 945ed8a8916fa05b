"""The networks: encoder to horizon at once, step by step, and by segments; all read the past through `gg.Recurrent`."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

import glassgate as gg
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.forecasting.heads import Draws, Head
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.loss import full
from glassgate.tasks.networks.encoder import encoder, last_outputs

_AT_ONCE = 2**22  # numbers of a part of the rows: the allocator keeps memory of this size, larger is new each time


class Sizes(NamedTuple):
    """What a network reads besides the values.

    Attributes:
        known: covariates known ahead
        past: covariates known up to the present
        series: how many series there are
    """

    known: int = 0
    past: int = 0
    series: int = 1


class Output(NamedTuple):
    """What a network says of a batch, in units of the training part's deviation.

    Attributes:
        parameters: of the head, `(N, S, size)`, for the last S steps of the windows; the loss is theirs
        forecast: of the head, `(N, H, size)`, for the horizon; None where paths are drawn
        paths: drawn values, `(N, paths, H)`; None where there are none
    """

    parameters: Tensor
    forecast: Tensor | None
    paths: Tensor | None = None


class Window(NamedTuple):
    """The windows of a batch as a network reads them.

    Attributes:
        values: `(N, B + H)`, shifted and scaled; only the recursive model reads the last H, in training
        known: `(N, B + H, K)`
        past: `(N, B, P)`
        series: the vector of each series, `(N, E)`
        center, spread: the offset and the divisor of the values, `(N, 1)`
        scale: the divisor of the series, `(N, 1)`
    """

    values: Tensor
    known: Tensor
    past: Tensor
    series: Tensor
    center: Tensor
    spread: Tensor
    scale: Tensor


class Forecaster(nn.Module):
    """The common part: the window, shifted by its values up to the present, and the vectors of the series."""

    def __init__(self, options: ForecastingOptions, sizes: Sizes, head: Head):
        super().__init__()
        self.options, self.sizes, self.head = options, sizes, head
        self.back, self.horizon = options.steps_back, options.horizon
        self.dropout = nn.Dropout(options.dropout)
        several = sizes.series > 1 and options.embedding_size > 0
        self.series = nn.Embedding(sizes.series, options.embedding_size) if several else None
        self.embedding_size = options.embedding_size if several else 0

    def window(self, batch: Batch) -> Window:
        """Cut the windows out of a batch: their last B + H steps."""
        values = batch["values"][:, -self.back - self.horizon :]
        past = values[:, : self.back]
        center, spread = torch.zeros_like(past[:, :1]), torch.ones_like(past[:, :1])
        if self.options.head != "negative-binomial":
            if self.options.normalize == "last":
                center = past[:, -1:]
            elif self.options.normalize == "window":
                center = past.mean(1, keepdim=True)
                spread = (past.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
        nothing = values[:, :, None][:, :, :0]
        known = batch["known"][:, -self.back - self.horizon :] if self.sizes.known else nothing
        covariates = batch["past"][:, -self.back - self.horizon : -self.horizon] if self.sizes.past else nothing
        return Window(
            (values - center) / spread,
            known,
            covariates[:, : self.back],
            self._vectors(batch["number"]),
            center,
            spread,
            batch["scale"][:, None],
        )

    def _vectors(self, numbers: Tensor) -> Tensor:
        """The series' vectors, `(N, E)`; the mean of all for one that training did not have, whose number is -1."""
        if self.series is None:
            return torch.zeros(len(numbers), 0, device=numbers.device)
        found = self.series(numbers.clamp(min=0))
        return torch.where(numbers[:, None] < 0, self.series.weight.mean(0), found)

    def finished(self, raw: Tensor, window: Window) -> Tensor:
        """Return the head's parameters of a network's numbers, `(N, S, size)`."""
        return self.head.parameters(full(raw), window.center, window.spread, window.scale)


class Direct(Forecaster):
    """An encoder of the past; all steps of the horizon from its last state.

    Covariates known ahead go in twice: with the past, and with the step that is forecast.
    """

    def __init__(self, options: ForecastingOptions, sizes: Sizes, head: Head):
        super().__init__(options, sizes, head)
        size = options.hidden_size * (1 + options.bidirectional)
        self.encoder = encoder(options, 1 + sizes.known + sizes.past + self.embedding_size)
        self.steps = nn.Linear(size, options.horizon * head.size)
        if sizes.known:
            self.ahead = nn.Sequential(
                nn.Linear(size + sizes.known, options.hidden_size),
                nn.ReLU(),
                nn.Linear(options.hidden_size, head.size),
            )

    def forward(self, batch: Batch) -> Output:
        """From `values`, `(N, L)`, `known` and `past`, `(N, L, C)`, `number` and `scale`, `(N,)`."""
        window = self.window(batch)
        vectors = window.series[:, None].expand(-1, self.back, -1)
        parts = [window.values[:, : self.back, None], window.past, window.known[:, : self.back], vectors]
        _, state = self.encoder(torch.cat(parts, -1))
        last = self.dropout(last_outputs(self.encoder, state))
        raw = self.steps(last).unflatten(-1, (self.horizon, self.head.size))
        if self.sizes.known:
            each = last[:, None].expand(-1, self.horizon, -1)
            raw = raw + self.ahead(torch.cat([each, window.known[:, self.back :]], -1))
        parameters = self.finished(raw, window)
        return Output(parameters, parameters)


class Recursive(Forecaster):
    """One step at a time, as DeepAR does (Salinas et al. 2020): a step is read with the value before it and its own
    covariates, those of the step that is forecast; in a forecast the value before is one that was drawn.
    """

    def __init__(self, options: ForecastingOptions, sizes: Sizes, head: Head):
        super().__init__(options, sizes, head)
        self.encoder = encoder(options, 1 + sizes.known + self.embedding_size)
        self.step = nn.Linear(options.hidden_size, head.size)

    def forward(self, batch: Batch) -> Output:
        """From `values`, `(N, L)`, `known`, `(N, L, C)`, `number` and `scale`, `(N,)`."""
        window = self.window(batch)
        inputs = self._inputs(window.values[:, :-1], window.known[:, 1:], window.series)
        before, state = self.encoder(inputs[:, : self.back - 1]) if self.back > 1 else (inputs[:, :0, :1], None)
        after, _ = self.encoder(inputs[:, self.back - 1 :], state)
        states = torch.cat([before, after], 1) if self.back > 1 else after
        parameters = self.finished(self.step(self.dropout(states)), window)
        if self.training:
            return Output(parameters, None)
        return self._forecast(parameters, window, state)

    def follow(self, batch: Batch) -> Output:
        """A forecast of one step at each step of the horizon, in one call: the values before it are the true ones."""
        window = self.window(batch)
        states, _ = self.encoder(self._inputs(window.values[:, :-1], window.known[:, 1:], window.series))
        parameters = self.finished(self.step(states[:, self.back - 1 :]), window)
        return Output(parameters, parameters)

    def _forecast(self, parameters: Tensor, window: Window, state: Any) -> Output:
        rows, count = len(parameters), self.options.samples if self.head.draws else 1
        draws = Draws(rows, self.options.seed, parameters.device) if self.head.draws else None
        window = Window(*(each.repeat_interleave(count, 0) for each in window))
        state = repeated(state, count)
        value, said, drawn = window.values[:, self.back - 1 : self.back], [], []
        for step in range(self.back, self.back + self.horizon):
            inputs = self._inputs(value, window.known[:, step : step + 1], window.series)
            output, state = self.encoder(inputs, state)
            said.append(self.finished(self.step(output), window))
            if draws is not None:
                paths, scale = (each.unflatten(0, (rows, count)) for each in (said[-1], window.scale))
                made = self.head.sample(paths, scale, draws).flatten(0, 1)
            else:
                made = self.head.point(said[-1], window.scale)
            drawn.append(made)
            value = (made - window.center) / window.spread
        if draws is None:
            return Output(parameters, torch.cat(said, 1))
        return Output(parameters, None, torch.cat(drawn, 1).unflatten(0, (rows, count)))

    def _inputs(self, values: Tensor, known: Tensor, series: Tensor) -> Tensor:
        """What a step reads, `(N, L, 1 + K + E)`: the value before it, `(N, L)`, and its own covariates."""
        return torch.cat([values[..., None], known, series[:, None].expand(-1, values.shape[1], -1)], -1)


class Segments(Forecaster):
    """SegRNN (Lin et al. 2023, arXiv:2308.11200): the past in segments, a step each, and the horizon's segments all at
    once, each from the last state and a vector of its place and of its series.

    Covariates are segments, too; those known ahead are added to the vector of the place.
    """

    def __init__(self, options: ForecastingOptions, sizes: Sizes, head: Head):
        super().__init__(options, sizes, head)
        size, self.length = options.hidden_size, options.segment
        self.count = -(-options.horizon // self.length)
        self.embed = nn.Sequential(nn.Linear(self.length * (1 + sizes.known + sizes.past), size), nn.ReLU())
        self.encoder = encoder(options, size)
        self.places = nn.Parameter(torch.randn(self.count, size - self.embedding_size))
        if sizes.known:
            self.ahead = nn.Linear(self.length * sizes.known, size, bias=False)
        self.segment = nn.Linear(size, self.length * head.size)

    def forward(self, batch: Batch) -> Output:
        """From `values`, `(N, L)`, `known` and `past`, `(N, L, C)`, `number` and `scale`, `(N,)`."""
        window = self.window(batch)
        steps = torch.cat([window.values[:, : self.back, None], window.past, window.known[:, : self.back]], -1)
        _, state = self.encoder(self.embed(self._cut(steps)))
        shares = self.count > 1 and isinstance(self.encoder, gg.Recurrent) and not self.encoder.is_observed
        shares = shares and not torch.compiler.is_compiling()  # an exported program has no number of rows
        output = (self._sharing if shares else self._one_by_one)(window, state)
        raw = self.segment(self.dropout(output)).reshape(len(steps), self.count * self.length, self.head.size)
        parameters = self.finished(raw[:, : self.horizon], window)
        return Output(parameters, parameters)

    def _sharing(self, window: Window, state: Any) -> Tensor:
        """A step of the encoder for each segment of the horizon, `(N, S, H)`, some rows after the other."""
        states = state if isinstance(state, tuple) else (state,)
        rows = max(1, _AT_ONCE // (self.count * self.encoder.output_size))
        windows = (Window(*part) for part in zip(*(each.split(rows) for each in window), strict=True))
        befores = zip(*(each[:, :, None].split(rows, 1) for each in states), strict=True)
        return torch.cat([self._at_once(*part) for part in zip(windows, befores, strict=True)])

    def _at_once(self, window: Window, states: tuple[Tensor, ...]) -> Tensor:
        """These steps, from states `(layers, N, 1, H)`: a state is multiplied by its weights once for all segments, and
        the vector that asks for a segment by its parts.
        """
        output = None
        for layer, (cell, weights) in enumerate(self.encoder.weights()):
            weight, bias = weights["weight_ih"], weights["bias_ih"]
            if output is None:
                ih = self._asked(window, weight, bias)
            else:
                ih = linear(dropout(output, self.encoder.dropout, self.training), weight, bias)
            output, *_ = gg.functional.step(cell, ih, tuple(each[layer] for each in states), weights)
        assert output is not None
        return output

    def _asked(self, window: Window, weight: Tensor, bias: Tensor) -> Tensor:
        """`W x + b` of the vector that asks for each segment, `(N or 1, S, size)`."""
        of_place, of_series = weight.split([self.places.shape[1], self.embedding_size], 1)
        asked = linear(self.places, of_place, bias)[None]
        if self.series is not None:
            asked = asked + linear(window.series, of_series)[:, None]
        if self.sizes.known:
            asked = asked + linear(self._cut(window.known[:, self.back :]), weight @ self.ahead.weight)
        return asked

    def _one_by_one(self, window: Window, state: Any) -> Tensor:
        """The same through the encoder, each segment a sequence of its own, where there is one or somebody looks on."""
        rows = len(window.values)
        places = self.places.expand(rows, -1, -1)
        asked = torch.cat([places, window.series[:, None].expand(-1, self.count, -1)], -1)
        if self.sizes.known:
            asked = asked + self.ahead(self._cut(window.known[:, self.back :]))
        output, _ = self.encoder(asked.reshape(rows * self.count, 1, -1), repeated(state, self.count))
        return output.reshape(rows, self.count, -1)

    def _cut(self, steps: Tensor) -> Tensor:
        """From steps, `(N, L, C)`, to segments, `(N, L / W, W C)`; a last one that is short repeats its last step."""
        short = -steps.shape[1] % self.length
        if short:
            steps = torch.cat([steps, steps[:, -1:].expand(-1, short, -1)], 1)
        return steps.unflatten(1, (-1, self.length)).transpose(2, 3).flatten(2)


def network(options: ForecastingOptions, sizes: Sizes, head: Head) -> Forecaster:
    """Return the network that the options name."""
    kinds: dict[str, type[Forecaster]] = {"direct": Direct, "recursive": Recursive, "segments": Segments}
    return kinds[options.model](options, sizes, head)


def repeated(state: Any, count: int) -> Any:
    """Repeat each row of a state, `(layers, N, H)` or several of these."""
    if isinstance(state, tuple):
        return tuple(each.repeat_interleave(count, 1) for each in state)
    return None if state is None else state.repeat_interleave(count, 1)
