"""A task's network as Lightning trains it; a step's batch, noise and rate follow from its number."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import AdamW, Optimizer

from glassgate.tasks.data.batches import Batch, Batches, Encoded, Loader, is_idle, lengths, padding, sample
from glassgate.tasks.loss import Loss, Mean, value
from glassgate.tasks.training.layer_statistics import Watch
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.schedule import Schedule
from glassgate.tasks.training.scoring import AnyTask, score, scored
from glassgate.tasks.wording import duration, plural

_SAMPLE = 20_000  # units of the training data that are scored like the dev data, for the curves


class Step(NamedTuple):
    """What a step came to, in all processes together: its loss, and how many units were read."""

    loss: float
    units: int


class Training(LightningModule):
    """A task's network with its position in the training: epoch, and batches done of it.

    Lightning counts from zero when a training is resumed. These positions go on, so checkpoints and logs use them.
    """

    def __init__(self, task: AnyTask, data: Sequence[Encoded], dev: Sequence[Encoded], processes: Group):
        super().__init__()
        self.task = task
        self.processes = processes
        self.network = task.network
        self.metrics = task.metrics()
        self.data = data
        self.dev = dev
        self.lengths = lengths(data)
        self.units_an_epoch = task.batching().units(self.lengths)
        self.epoch = 0
        self.batch = 0
        self.steps = 0
        self.units = 0
        self.seconds = 0.0
        self.batches: Batches = []
        self.optimizer_state: dict[int, dict[str, Tensor]] = {}
        self.step = Step(0.0, 0)
        self.asks: Callable[[], Sequence[float]] = tuple
        self.answers: list[float] = []
        self.scores: dict[str, float] = {}
        self.dev_loss: np.ndarray | None = None  # of each part of it the sum, and of how many values
        self.sample = sample(data, _SAMPLE, task.options.seed)
        self.padding = padding(self.order())
        self.carried: Sequence[str] = getattr(task.network, "carried", ())
        self.taken_rate = 0.0
        options = task.options
        patience = options.patience if dev else 0
        self.schedule = Schedule(options.epochs, options.max_epochs if dev else 0, options.warmup, patience)
        self.watch = Watch(self.network)
        self.watched: dict[str, float] | None = None  # further values for the log; None without a log

    def train_dataloader(self) -> Loader:
        self.batches = self.order()
        return Loader(self.data, self.batches, self.task.padding, self.batch, self.processes.share)

    def order(self) -> Batches:
        """The batches of the present epoch."""
        return self.task.batching().training(self.lengths, self.epoch)

    def val_dataloader(self) -> Loader | list[Any]:
        if not self.dev:
            return []
        batches = self.task.batching().evaluation(lengths(self.dev))
        return Loader(self.dev, batches, self.task.padding, share=self.processes.share)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        options = self.task.options
        optimizer = AdamW(self.network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
        if self.optimizer_state:
            optimizer.load_state_dict(optimizer.state_dict() | {"state": self.optimizer_state})
        return optimizer

    def set_rate(self) -> None:
        """Give the optimizer the learning rate of the next step."""
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = self.task.options.learning_rate * self.schedule.rate(self.place())

    def place(self) -> float:
        """The middle of the next step, in epochs from the start."""
        return self.epoch + (self.batch + 0.5) / max(1, len(self.batches))

    def forecast(self) -> str:
        """Describe how long training takes, from the time of one step on a copy of the network."""
        network, batches = deepcopy(self.network).train(), self.order()
        device = "cuda" if self.task.options.device in ("auto", "cuda") and torch.cuda.is_available() else "cpu"
        middle = [*islice(batches, len(batches) // 2, len(batches) // 2 + 1)]
        (batch,) = Loader(self.data, middle, self.task.padding)
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        batch["goes_on"] = torch.zeros_like(batch["goes_on"])  # no batch before this one left a state
        optimizer = AdamW(network.to(device).parameters())
        with torch.random.fork_rng():
            for _ in range(2):  # the first one may compile kernels
                start = time.perf_counter()
                value(self.task.loss(network(batch), batch)).backward()
                optimizer.step()
                seconds = time.perf_counter() - start
        an_epoch = seconds * self.units_an_epoch / max(1, int(batch["lengths"].sum())) / self.processes.size
        schedule = self.schedule
        said = f"about {duration(an_epoch)} per epoch, {duration(an_epoch * schedule.total)} in all"
        if schedule.most == schedule.epochs:
            return said
        return (
            f"{said}; while the dev score improves training goes on, up to {plural(schedule.most, 'epoch')} "
            f"({duration(an_epoch * schedule.most)}; --max-epochs)"
        )

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        words = np.random.SeedSequence([self.task.options.seed, self.epoch, self.batch]).generate_state(2, np.uint32)
        seed = int(words[0]) << 31 | int(words[1]) >> 1
        if self.processes.size > 1:
            batch["seed"] = torch.tensor(seed)
        torch.manual_seed(seed + self.processes.world.rank)
        self.task.begin_step(self.schedule.done(self.place()))
        self.set_rate()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        with self.watch.inputs() if self._is_watched(self.steps + 1) else nullcontext():
            loss = self._joined(self.task.loss(self.network(batch), batch), batch)
        self.taken_rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.batch += 1
        self.steps += 1
        return loss

    def _joined(self, loss: Loss, batch: Batch) -> Tensor:
        """The mean over the rows of all processes, so that the mean of their gradients is that of one process.

        One message sums the losses and the other numbers that the processes exchange in this step.
        """
        if is_idle(batch):
            loss = [Mean(part.total * 0.0, 0) for part in loss]
        units = 0.0 if is_idle(batch) else float(batch["lengths"].sum())
        own = [float(part.total.detach()) for part in loss] + [float(part.number) for part in loss]
        units, *sums = self.processes.sum([units, *own, *self.asks()])
        totals, counts, self.answers = sums[: len(loss)], sums[len(loss) : len(own)], sums[len(own) :]
        parts = zip(totals, counts, strict=True)
        self.step = Step(sum(total / max(1.0, count) for total, count in parts), int(units))
        return value(loss, counts) * self.processes.size

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self.watched is not None and self._is_watched(self.steps):
            self.watched |= self.watch.gradients() | self.watch.values()

    def _is_watched(self, step: int) -> bool:
        """Whether the layers are looked at in this step: its row is logged."""
        return self.watched is not None and step % self.task.options.log_every == 0

    def on_validation_epoch_start(self) -> None:
        self.dev_loss = None
        self.metrics.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if is_idle(batch):
            return
        output = self.network(batch)
        self.metrics.update(**self.task.glance(output, batch))
        if self.task.one_loss:
            loss = np.array([(float(part.total), float(part.number)) for part in self.task.loss(output, batch)])
            self.dev_loss = loss if self.dev_loss is None else self.dev_loss + loss

    def on_validation_epoch_end(self) -> None:
        self.scores = scored(self.metrics, self.processes)

    def dev_curves(self) -> dict[str, float]:
        """The dev data's part in the logs."""
        sums = np.array([each for each in self.processes.gathered(self.dev_loss) if each is not None]).sum(0)
        loss = {"loss": float((sums[:, 0] / sums[:, 1].clip(1)).sum())} if sums.shape else {}
        return {f"dev_{name}": value for name, value in (loss | self.scores).items()}

    def sample_score(self) -> dict[str, float]:
        """The monitored score on some of the training data, seen as the dev data is."""
        scores = score(self.task, self.sample, quickly=True, processes=self.processes)
        self.network.train()
        return {name: value for name, value in scores.items() if name == self.task.monitor}
