"""Forecasting networks. They read the past recurrently and forecast all steps at once, step by step, or by segments."""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

import glassgate as gg
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.forecasting.heads import Head, SharedDraws
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.loss import to_float
from glassgate.tasks.networks.encoder import as_tuple, encoder, last_outputs, repeat_rows

_CHUNK_ELEMENTS = 2**22  # maximum number of elements of a chunk's output; the allocator reuses memory up to this size


class Sizes(NamedTuple):
    """The numbers of covariates known ahead and up to the present, and of series. They determine shapes of weights."""

    known: int = 0
    past: int = 0
    series: int = 1


class Output(NamedTuple):
    """The output of a network for a batch, in units of the standard deviation of the training part.

    Attributes:
        parameters: the parameters of the head for the last S steps of the windows, `(N, S, size)`, for the loss
        forecast: the parameters of the head for the horizon, `(N, H, size)`; None if paths are sampled
        paths: sampled values, `(N, paths, H)`; None if no paths are sampled
    """

    parameters: Tensor
    forecast: Tensor | None
    paths: Tensor | None = None


class Window(NamedTuple):
    """The windows of a batch, of B past and H future steps, as inputs of a network.

    Attributes:
        values: the normalised values, `(N, B + H)`; only the recursive model reads the last H, for its loss
        known: covariates known ahead, `(N, B + H, K)`
        past: covariates known up to the present, `(N, B, P)`
        series: the embedding of each series, `(N, E)`
        shift, scale: the offset and the divisor by which each window is normalised, `(N, 1)`
        series_scale: the standard deviation of each series in the training part, `(N, 1)`
    """

    values: Tensor
    known: Tensor
    past: Tensor
    series: Tensor
    shift: Tensor
    scale: Tensor
    series_scale: Tensor


class LinearMap(NamedTuple):
    """A linear map of the normalised look-back to the horizon, with the root mean squared error of each of its steps.

    The shapes are `(H, B)`, `(H,)` and `(H,)`.
    """

    weight: Tensor
    bias: Tensor
    deviation: Tensor


class Forecaster(nn.Module):
    """The common part of the networks: normalised windows, and embeddings of the series.

    The inputs of `forward` are `values`, `(N, L)`, `known` and `past`, `(N, L, C)`, `series` and `scale`, `(N,)`.
    """

    output_layer: ClassVar[str]

    def __init__(self, options: ForecastingOptions, sizes: Sizes, head: Head):
        super().__init__()
        self.options, self.sizes, self.head = options, sizes, head
        self.back, self.horizon = options.steps_back, options.horizon
        self.dropout = nn.Dropout(options.dropout)
        embeds = sizes.series > 1 and options.embedding_size > 0
        self.series = nn.Embedding(sizes.series, options.embedding_size) if embeds else None
        self.embedding_size = options.embedding_size if embeds else 0

    def parts(self) -> dict[str, nn.Module | nn.Parameter]:
        """Return the layers and the vectors of places, with the same names in all networks."""
        layers = {"encoder": self.encoder, "steps": getattr(self, self.output_layer)}
        found = {name: getattr(self, name, None) for name in ("embed", "places", "ahead", "linear", "series")}
        return layers | {name: part for name, part in found.items() if part is not None}

    def window(self, batch: Batch) -> Window:
        """Return the windows of a batch: the last B + H steps, normalised by the past values."""
        values, series = batch["values"][:, -self.back - self.horizon :], batch["series"]
        past = values[:, : self.back]
        shift, scale = torch.zeros_like(past[:, :1]), torch.ones_like(past[:, :1])
        if self.options.head != "negative-binomial":
            if self.options.normalize == "last":
                shift = past[:, -1:]
            elif self.options.normalize == "window":
                shift = past.mean(1, keepdim=True)
                scale = (past.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
        empty = values[:, :, None][:, :, :0]
        known = batch["known"][:, -self.back - self.horizon :] if self.sizes.known else empty
        covariates = batch["past"][:, -self.back - self.horizon : -self.horizon] if self.sizes.past else empty
        vectors = torch.zeros(values.shape[0], 0, device=values.device)  # for torch.export, `len` is a constant
        if self.series is not None:  # the mean embedding for a series that the training data lacks (-1)
            vectors = torch.where(series[:, None] < 0, self.series.weight.mean(0), self.series(series.clamp(min=0)))
        scaled = (values - shift) / scale
        return Window(scaled, known, covariates[:, : self.back], vectors, shift, scale, batch["scale"][:, None])

    def head_parameters(self, raw: Tensor, window: Window) -> Tensor:
        """Return the parameters of the head for raw outputs, `(N, S, size)`."""
        return self.head.parameters(to_float(raw), window.shift, window.scale, window.series_scale)


class Direct(Forecaster):
    """Encodes the past, and maps the last state to all steps of the horizon.

    Covariates known ahead are inputs of the encoder at past steps, and of a second network at each step of the horizon.
    With the option `linear`, a linear map of the past values is added to the output. Its weights are initially zero.
    """

    output_layer = "steps"

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
        self.linear = nn.Linear(self.back, options.horizon * head.size, bias=False) if options.linear else None
        if self.linear is not None:
            nn.init.zeros_(self.linear.weight)

    @torch.no_grad()
    def blend(self, fitted: LinearMap, share: float) -> None:
        """Replace the output by `share` times the output plus (1 - `share`) times a fitted linear map."""
        assert self.linear is not None
        locations = list(self.head.locations)
        layers = [self.steps, self.linear, *([self.ahead[-1]] if self.sizes.known else [])]
        for parameter in nn.ModuleList(layers).parameters():
            parameter.mul_(share)
        bias = self.head.spread(fitted.deviation)
        bias[:, locations] += fitted.bias[:, None]
        self.steps.bias.add_((1 - share) * bias.flatten())
        weight = self.linear.weight.view(self.horizon, self.head.size, self.back)
        weight[:, locations] += (1 - share) * fitted.weight[:, None]

    def forward(self, batch: Batch) -> Output:
        window = self.window(batch)
        vectors = window.series[:, None].expand(-1, self.back, -1)
        parts = [window.values[:, : self.back, None], window.past, window.known[:, : self.back], vectors]
        _, state = self.encoder(torch.cat(parts, -1))
        last = self.dropout(last_outputs(self.encoder, state))
        raw = self.steps(last)
        if self.linear is not None:
            raw = raw + self.linear(window.values[:, : self.back].to(last.dtype))
        raw = raw.unflatten(-1, (self.horizon, self.head.size))
        if self.sizes.known:
            repeated_last = last[:, None].expand(-1, self.horizon, -1)
            raw = raw + self.ahead(torch.cat([repeated_last, window.known[:, self.back :]], -1))
        parameters = self.head_parameters(raw, window)
        return Output(parameters, parameters)


class Recursive(Forecaster):
    """Forecasts one step at a time, as DeepAR (Salinas et al. 2020).

    The input of a step is the previous value and the covariates of the step that is forecast. In the horizon, the
    previous value is a sample, or the point forecast if the head cannot sample.
    """

    output_layer = "step"

    def __init__(self, options: ForecastingOptions, sizes: Sizes, head: Head):
        super().__init__(options, sizes, head)
        self.encoder = encoder(options, 1 + sizes.known + self.embedding_size)
        self.step = nn.Linear(options.hidden_size, head.size)

    def forward(self, batch: Batch) -> Output:
        window = self.window(batch)
        inputs = self._inputs(window.values[:, :-1], window.known[:, 1:], window.series)
        state = None
        if self.back > 1:
            past_states, state = self.encoder(inputs[:, : self.back - 1])
        states, _ = self.encoder(inputs[:, self.back - 1 :], state)
        if self.back > 1:
            states = torch.cat([past_states, states], 1)
        parameters = self.head_parameters(self.step(self.dropout(states)), window)
        if self.training:
            return Output(parameters, None)
        return self._forecast(parameters, window, state)

    def forecast_from_true_values(self, batch: Batch) -> Output:
        """Forecast each step of the horizon from the true previous values, in one call of the encoder."""
        window = self.window(batch)
        states, _ = self.encoder(self._inputs(window.values[:, :-1], window.known[:, 1:], window.series))
        parameters = self.head_parameters(self.step(states[:, self.back - 1 :]), window)
        return Output(parameters, parameters)

    def _forecast(self, parameters: Tensor, window: Window, state: Any) -> Output:
        rows, count = parameters.shape[0], self.options.samples if self.head.can_sample else 1
        draws = SharedDraws(rows, self.options.seed, parameters.device) if self.head.can_sample else None
        window = Window(*(each.repeat_interleave(count, 0) for each in window))
        state = repeat_rows(state, count)
        value, outputs, samples = window.values[:, self.back - 1 : self.back], [], []
        for step in range(self.back, self.back + self.horizon):
            inputs = self._inputs(value, window.known[:, step : step + 1], window.series)
            output, state = self.encoder(inputs, state)
            outputs.append(self.head_parameters(self.step(output), window))
            if draws is not None:
                by_row, scale = (each.unflatten(0, (rows, count)) for each in (outputs[-1], window.series_scale))
                sample = self.head.sample(by_row, scale, draws).flatten(0, 1)
            else:
                sample = self.head.point(outputs[-1], window.series_scale)
            samples.append(sample)
            value = (sample - window.shift) / window.scale
        if draws is None:
            return Output(parameters, torch.cat(outputs, 1))
        return Output(parameters, None, torch.cat(samples, 1).unflatten(0, (rows, count)))

    def _inputs(self, values: Tensor, known: Tensor, series: Tensor) -> Tensor:
        """The inputs of the steps, `(N, L, 1 + K + E)`: the previous values, `(N, L)`, and the covariates."""
        return torch.cat([values[..., None], known, series[:, None].expand(-1, values.shape[1], -1)], -1)


class Segments(Forecaster):
    """SegRNN (Lin et al. 2023, arXiv:2308.11200): reads and forecasts segments.

    A step of the encoder reads a segment of the past. All segments of the horizon are forecast at once, each from the
    last state and from a query, which consists of the embeddings of its position and of its series. Covariates are
    divided into segments, too. A linear map of the covariates known ahead is added to the query.
    """

    output_layer = "segment"

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
        window = self.window(batch)
        steps = torch.cat([window.values[:, : self.back, None], window.past, window.known[:, : self.back]], -1)
        _, state = self.encoder(self.embed(self._cut(steps)))
        encoder = self.encoder
        in_chunks = self.count > 1 and isinstance(encoder, gg.Recurrent) and not encoder.glassgate.is_observed
        in_chunks = in_chunks and not torch.compiler.is_compiling()  # an exported program has no fixed number of rows
        output = (self._run_in_chunks if in_chunks else self._run_as_sequences)(window, state)
        raw = self.segment(self.dropout(output)).reshape(len(steps), self.count * self.length, self.head.size)
        parameters = self.head_parameters(raw[:, : self.horizon], window)
        return Output(parameters, parameters)

    def _run_in_chunks(self, window: Window, state: Any) -> Tensor:
        """The encoder's output for each segment of the horizon, `(N, segments, hidden_size)`, in chunks of rows."""
        rows = max(1, _CHUNK_ELEMENTS // (self.count * self.encoder.output_size))
        windows = (Window(*tensors) for tensors in zip(*(each.split(rows) for each in window), strict=True))
        states = zip(*(each[:, :, None].split(rows, 1) for each in as_tuple(state)), strict=True)
        return torch.cat([self._run_chunk(*chunk) for chunk in zip(windows, states, strict=True)])

    def _run_chunk(self, window: Window, states: tuple[Tensor, ...]) -> Tensor:
        """One step of all layers for all segments, from states `(layers, N, 1, hidden_size)`.

        The product of a state and its weights is computed once for all segments. The product of a query and its weights
        is the sum of the products of the query's parts.
        """
        output = None
        for layer, (cell, weights) in enumerate(self.encoder.weights()):
            weight, bias = weights["weight_ih"], weights["bias_ih"]
            if output is None:
                ih = self._queries(window, weight, bias)
            else:
                ih = linear(dropout(output, self.encoder.dropout, self.training), weight, bias)
            output, *_ = gg.functional.step(cell, ih, tuple(each[layer] for each in states), weights)
        assert output is not None
        return output

    def _queries(self, window: Window, weight: Tensor, bias: Tensor) -> Tensor:
        """`W x + b` for the query x of each segment, `(N or 1, segments, size)`."""
        place_weight, series_weight = weight.split([self.places.shape[1], self.embedding_size], 1)
        queries = linear(self.places, place_weight, bias)[None]
        if self.series is not None:
            queries = queries + linear(window.series, series_weight)[:, None]
        if self.sizes.known:
            queries = queries + linear(self._cut(window.known[:, self.back :]), weight @ self.ahead.weight)
        return queries

    def _run_as_sequences(self, window: Window, state: Any) -> Tensor:
        """Like `_run_in_chunks`, but each segment is a sequence, as recordings, edits, exports and sessions require."""
        rows = len(window.values)
        places = self.places.expand(rows, -1, -1)
        queries = torch.cat([places, window.series[:, None].expand(-1, self.count, -1)], -1)
        if self.sizes.known:
            queries = queries + self.ahead(self._cut(window.known[:, self.back :]))
        output, _ = self.encoder(queries.reshape(rows * self.count, 1, -1), repeat_rows(state, self.count))
        return output.reshape(rows, self.count, -1)

    def _cut(self, steps: Tensor) -> Tensor:
        """Cut steps, `(N, L, C)`, into segments of W = `self.length` steps, `(N, ceil(L / W), W C)`.

        The last step is repeated if the last segment is too short.
        """
        missing = -steps.shape[1] % self.length
        if missing:
            steps = torch.cat([steps, steps[:, -1:].expand(-1, missing, -1)], 1)
        return steps.unflatten(1, (-1, self.length)).transpose(2, 3).flatten(2)


def network(options: ForecastingOptions, sizes: Sizes, head: Head) -> Forecaster:
    """Return the network that the option `model` selects."""
    networks = {"direct": Direct, "recursive": Recursive, "segments": Segments}
    return networks[options.model](options, sizes, head)
