"""Forecasting as an ONNX model, which reads the past of series and returns their next steps, in units of the data."""

import torch
from torch import Tensor, nn

from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.network import Recursive
from glassgate.tasks.forecasting.task import Forecasting
from glassgate.tasks.onnx.models import Model


class _Forecast(nn.Module):
    """The network as a function of tensors, with the scaling of its inputs and outputs.

    `scales` are the offset and the divisor of each training series, `(S, 2)`, and `known` and `past` those of the
    covariates, `(2, K)` and `(2, P)`.
    """

    scales: Tensor
    known: Tensor
    past: Tensor

    def __init__(self, task: Forecasting) -> None:
        super().__init__()
        self.network, self.head, self.options, fitted = task.network, task.head, task.options, task.fitted
        self.register_buffer("scales", torch.tensor([scale[:2] for scale in fitted["series"].values()]))
        num_unscaled = task.statistics.num_known - len(fitted["known"])  # calendar and static covariates
        known = [*fitted["known"], *[[0.0, 1.0]] * num_unscaled]
        for name, moments in (("known", known), ("past", fitted["past"])):
            self.register_buffer(name, torch.tensor([[mean, scale or 1.0] for mean, scale in moments]).view(-1, 2).T)

    def forward(
        self, values: Tensor, series: Tensor, known: Tensor | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the next values, `(N, H)`, and their quantiles, `(N, H, Q)`, if the head has a formula for them.

        Args:
            values: the last B values, `(N, B)`
            series: the index of each series in the training data, from 0, `(N,)`; -1 for any other series
            known: covariates known ahead, `(N, B + H, K)`
            past: covariates known up to the present, `(N, B, P)`
        """
        shift, scale = self._scale(values, series)
        horizon = self.options.horizon
        padded = nn.functional.pad((values - shift) / scale, (0, horizon))
        batch = {"values": padded, "series": series, "scale": scale[:, 0]}
        if known is not None:
            batch["known"] = (known - self.known[0]) / self.known[1]
        if past is not None:
            batch["past"] = nn.functional.pad((past - self.past[0]) / self.past[1], (0, 0, 0, horizon))
        forecast = self.network(batch).forecast
        point = self.head.point(forecast, scale) * scale + shift
        quantiles = self.head.quantiles(forecast, self.options.levels) if self.head.has_quantiles else None
        return (point,) if quantiles is None else (point, quantiles * scale[..., None] + shift[..., None])

    def _scale(self, values: Tensor, series: Tensor) -> tuple[Tensor, Tensor]:
        """The offset and the divisor of each series, (N, 1) each; computed from the values if the series is new."""
        learned = self.scales[series.clamp(min=0)]
        if self.options.head == "negative-binomial":
            shift, scale = torch.zeros_like(values[:, :1]), 1 + values.abs().mean(1, keepdim=True)
        else:
            shift, scale = values.mean(1, keepdim=True), values.std(1, correction=0, keepdim=True)
            scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        is_new = series[:, None] < 0
        return torch.where(is_new, shift, learned[:, :1]), torch.where(is_new, scale, learned[:, 1:])


def export(task: Forecasting) -> list[Model]:
    """Return the model. It scales values and covariates."""
    options, count = task.options, len(task.fitted["series"])
    if isinstance(task.network, Recursive) and task.head.can_sample:
        raise OptionError(
            f"--to onnx: the recursive model with head {options.head} forecasts by random paths, which an ONNX model "
            "cannot draw; train a run with --head quantiles, or with --model direct"
        )
    back, known, past = options.steps_back, task.statistics.num_known, len(task.fitted["past"])
    axes = {"values": "N *", "series": "N"}
    axes |= ({"known": "N * *"} if known else {}) | ({"past": "N * *"} if past else {})

    def random_inputs(N: int, L: int) -> tuple[Tensor | None, ...]:
        given: list[Tensor | None] = [torch.rand(N, back) * 10, torch.randint(-1, count, (N,))]
        given += [torch.randn(N, back + options.horizon, known)] if known else [None] if past else []
        return *given, *([torch.randn(N, back, past)] if past else [])

    module = _Forecast(task)
    with torch.no_grad():
        outputs = ["values", "quantiles"][: len(module(*random_inputs(1, 1)))]
    outputs = [f"forecast_{name}" if name in axes else name for name in outputs]
    return [Model(module, axes, random_inputs, outputs)]
