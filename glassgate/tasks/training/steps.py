"""Training steps. Data, random state and learning rate depend only on epoch and batch, so training can resume."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from glassgate.tasks.data.batches import (
    Batch,
    Encoded,
    Loader,
    is_idle,
    lengths,
    move,
    restore_random_state,
    sample,
    to_device,
)
from glassgate.tasks.data.batching import Batches, padding_fraction
from glassgate.tasks.loss import Loss, Mean, loss_value, totals_and_counts
from glassgate.tasks.training.devices import device_of
from glassgate.tasks.training.layer_statistics import Exponents, LayerStatistics
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.schedule import Schedule
from glassgate.tasks.training.scoring import AnyTask, outputs, score, scores_of
from glassgate.tasks.wording import duration, plural

_SAMPLE = 20_000  # tokens or time steps of the training data that are scored like the dev data, for the curves
_READ_EVERY = 10
"""On a GPU, results are read once in this number of steps, because the CPU waits for the GPU when it reads them."""


class Step(NamedTuple):
    """The mean loss, the number of tokens or time steps, and the sums of requests, of a step over all processes."""

    loss: float
    units: int
    requests: Sequence[float]


class Training:
    """The state of a training: network, optimizer, and position as epoch and batch.

    Attributes:
        model: the network, wrapped in `DistributedDataParallel` if there are several processes
        steps, units, seconds: the finished steps, their tokens or time steps, and the time that they took
        loss: the sum of the losses of all tokens since the start of the epoch
        unlogged: the sum of the losses of all tokens since the last row of the logs, and the number of these tokens
        history: the mean loss and the dev scores of each epoch
        requests: returns the requests of this process, such as a stop, as numbers; their sums are in each `Step`
        scores: the scores of the last evaluation on dev data
        layer_values: statistics of the layers for the next row of the logs; None without logs
    """

    saved = ("epoch", "batch", "steps", "units", "seconds", "loss", "unlogged", "history")
    """The names of the attributes that checkpoints contain as JSON."""

    def __init__(self, task: AnyTask, data: Sequence[Encoded], dev: Sequence[Encoded], processes: Group):
        options = task.options
        self.task = task
        self.processes = processes
        self.device = device_of(options, processes)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # NCCL and pinned memory use the current device
        self.network = task.network.to(self.device)
        self.model: nn.Module = self.network
        if processes.size > 1:
            self.model = DistributedDataParallel(self.network, init_sync=False, broadcast_buffers=False)
        self.optimizer = AdamW(self.network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=options.precision == "16-mixed")
        self.metrics = task.metrics().to(self.device)
        self.data = data
        self.dev = dev
        self.lengths = lengths(data)
        self.units_per_epoch = task.batching().count_units(self.lengths)
        self.epoch = self.batch = self.steps = self.units = 0
        self.seconds = self.loss = 0.0
        self.unlogged = {"loss": 0.0, "units": 0.0}
        self.history: list[dict[str, Any]] = []
        self.batches: Batches = []
        self.requests: Callable[[], Sequence[float]] = tuple
        self._unread: list[Tensor] = []  # the results of steps, still on the device
        self._unread_norms: list[Tensor] = []
        self.scores: dict[str, float] = {}
        self.dev_loss: np.ndarray | None = None  # the totals and the counts of the P parts of the loss, `(2, P)`
        self.sample = sample(data, _SAMPLE, options.seed)
        self.padding_fraction = padding_fraction(self.epoch_batches())
        self.carried: Sequence[str] = getattr(task.network, "carried", ())
        self.rate = 0.0
        patience = options.patience if dev else 0
        self.schedule = Schedule(options.epochs, options.max_epochs if dev else 0, options.warmup, patience)
        self.layer_statistics = LayerStatistics(self.network)
        self.layer_values: dict[str, float] | None = None
        self.exponents = Exponents(self.network, options.lyapunov)

    def batches_left(self) -> Iterator[Batch]:
        """The remaining batches of the current epoch, on the device."""
        self.batches = self.epoch_batches()
        for batch in Loader(self.data, self.batches, self.task.padding, self.batch, self.processes.shard):
            yield to_device(batch, self.device)

    def epoch_batches(self) -> Batches:
        """The batches of the current epoch."""
        return self.task.batching().training(self.lengths, self.epoch)

    def set_rate(self) -> None:
        """Set the learning rate of the next batch."""
        self.rate = self.task.options.learning_rate * self.schedule.rate(self._position())

    def _position(self) -> float:
        """The position of the middle of the next batch, in epochs since the start of training."""
        return self.epoch + (self.batch + 0.5) / max(1, len(self.batches))

    def backward(self, batch: Batch) -> bool:
        """Add the gradients of a batch; return whether it is the last batch of its optimizer step."""
        accumulate = self.task.options.accumulate
        complete = (self.batch + 1) % accumulate == 0 or self.batch + 1 == len(self.batches)
        if self.batch % accumulate == 0:
            self.optimizer.zero_grad()
        self._seed(batch)
        self.task.begin_step(self.schedule.done(self._position()))
        # Gradients are averaged over processes only in the last batch of an optimizer step.
        model = self.model
        with model.no_sync() if isinstance(model, DistributedDataParallel) and not complete else nullcontext():
            with (
                self.layer_statistics.store_inputs() if self._is_logged(self.steps + 1) else nullcontext(),
                self._autocast(),
            ):
                loss = self._global_loss(self.task.loss(model(batch), batch), batch)
            self.scaler.scale(loss / accumulate).backward()
        self.batch += 1
        self.steps += 1
        if complete:
            self.scaler.unscale_(self.optimizer)
        return complete

    @property
    def read_due(self) -> bool:
        """Whether to read the results of the steps now: after each step on a CPU, after several on a GPU."""
        return self.device.type == "cpu" or self.batch % _READ_EVERY == 0 or self.batch == len(self.batches)

    def read(self) -> list[Step]:
        """Return the results of the steps since the last call. On a GPU, this waits for the steps."""
        rows = torch.stack(self._unread).tolist()  # a row has units, requests, totals and counts
        self._unread.clear()
        steps = []
        for units, *numbers in rows:
            requests, sums = numbers[: len(self.requests())], numbers[len(self.requests()) :]
            parts = zip(sums[: len(sums) // 2], sums[len(sums) // 2 :], strict=True)
            steps.append(Step(sum(total / max(1.0, count) for total, count in parts), int(units), requests))
        return steps

    def read_norms(self) -> list[float]:
        """Return the norm of the gradient before clipping, for each optimizer step since the last call."""
        norms: list[float] = torch.stack(self._unread_norms).tolist() if self._unread_norms else []
        self._unread_norms.clear()
        return norms

    def update(self) -> None:
        """Run an optimizer step with the current learning rate."""
        if self.layer_values is not None and self._is_logged(self.steps):
            self.layer_values |= self.layer_statistics.gradient_norms() | self.layer_statistics.values()
        norm = nn.utils.get_total_norm([each.grad for each in self.network.parameters() if each.grad is not None])
        self._unread_norms.append(norm)
        if clip := self.task.options.clip:
            nn.utils.clip_grads_with_norm_(self.network.parameters(), clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.scaler.step(self.optimizer)
        self.scaler.update()

    @torch.inference_mode()
    def evaluate(self) -> None:
        """Compute the scores and the loss on dev data."""
        self.metrics.reset()
        losses: list[Tensor] = []
        with self.exponents.store_inputs(), self._autocast():
            for output, batch, _ in outputs(self.task, self.dev, shard=self.processes.shard):
                self.metrics.update(**self.task.glance(output, batch))
                if self.task.comparable_losses:
                    losses.append(totals_and_counts(self.task.loss(output, batch)))
        self.dev_loss = torch.stack(losses).cpu().double().sum(0).numpy() if losses else None
        self.scores = scores_of(self.metrics, self.processes)

    def estimate_duration(self) -> str:
        """Describe the expected duration of the training, from the time of a step on a copy of the network."""
        network, batches = deepcopy(self.network).train(), self.epoch_batches()
        middle_batch = [*islice(batches, len(batches) // 2, len(batches) // 2 + 1)]
        (batch,) = (to_device(each, self.device) for each in Loader(self.data, middle_batch, self.task.padding))
        batch["continues"] = torch.zeros_like(batch["continues"])  # the copy has no states from a previous batch
        optimizer = AdamW(network.parameters())
        with restore_random_state(self.device):
            for _ in range(2):  # the first step may compile kernels
                start = time.perf_counter()
                loss_value(self.task.loss(network(batch), batch)).backward()
                optimizer.step()
                next(network.parameters()).sum().item()  # on a GPU, waits for the end of the step
                seconds = time.perf_counter() - start
        epoch_seconds = seconds * self.units_per_epoch / max(1, int(batch["lengths"].sum())) / self.processes.size
        schedule = self.schedule
        text = f"about {duration(epoch_seconds)} per epoch, {duration(epoch_seconds * schedule.total)} in all"
        if schedule.max_epochs > schedule.epochs:
            text += (
                f"; training continues while the dev score improves, up to {plural(schedule.max_epochs, 'epoch')} "
                f"({duration(epoch_seconds * schedule.max_epochs)}; --max-epochs)"
            )
        return text

    def curves(self) -> dict[str, float]:
        """For the logs, the loss and the scores on dev data, and the monitored score on a sample of training data."""
        per_process = [each for each in self.processes.gather(self.dev_loss) if each is not None]
        values = {f"dev_{name}": value for name, value in self.scores.items()}
        if per_process:
            totals, counts = np.sum(per_process, 0)
            values = {"dev_loss": float((totals / counts.clip(1)).sum())} | values
        scores = score(self.task, self.sample, at_a_glance=True, processes=self.processes)
        self.network.train()
        monitor = self.task.monitor
        return values | ({f"train_{monitor}": scores[monitor]} if monitor in scores else {})

    def _seed(self, batch: Batch) -> None:
        """Set the random state of a step: a function of the seed and the position."""
        words = np.random.SeedSequence([self.task.options.seed, self.epoch, self.batch]).generate_state(2, np.uint32)
        seed = int(words[0]) << 31 | int(words[1]) >> 1
        if self.processes.size > 1:
            batch["seed"] = torch.tensor(seed)
        torch.manual_seed(seed + self.processes.rank)

    def _autocast(self) -> torch.autocast:
        precision = self.task.options.precision
        dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
        return torch.autocast(self.device.type, dtype, enabled=precision != "32-true", cache_enabled=False)

    def _global_loss(self, loss: Loss, batch: Batch) -> Tensor:
        """The loss over the rows of all processes, scaled so that averaged gradients equal those of a single process.

        One all-reduce sums tokens, requests and the parts of the loss. The sums stay on the device until `read`.
        """
        if is_idle(batch):
            loss = [Mean(part.total * 0.0, 0) for part in loss]
        units = 0.0 if is_idle(batch) else float(batch["lengths"].sum())
        parts = totals_and_counts(loss).flatten()
        counters = move(torch.tensor([units, *self.requests()], dtype=parts.dtype), self.device)
        self._unread.append(self.processes.sum(torch.cat([counters, parts])))
        return loss_value(loss, self._unread[-1][-len(loss) :]) * self.processes.size

    def _is_logged(self, step: int) -> bool:
        """Whether the layers are measured in this step, for its row of the logs."""
        return self.layer_values is not None and step % self.task.options.log_every == 0
