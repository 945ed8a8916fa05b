"""Training by Lightning; a step's batch, noise and rate follow from its number, so it can stop and go on anywhere."""

import logging
import math
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics import MeanMetric, MetricCollection

from glassgate.tasks.data.batches import Batch, Batches, Encoded, Loader, padding, sample
from glassgate.tasks.errors import OptionError
from glassgate.tasks.logs import Logs
from glassgate.tasks.runs import Run

if TYPE_CHECKING:
    from glassgate.tasks.task import Task

_MODEL = "model."
_BUFFER = "buffer."
_OPTIMIZER = "optimizer."

# So much of the training data, in units, is scored like the dev data, for the curves.
_SAMPLE = 20_000


class Progress:
    """Told how a training goes; this one keeps quiet."""

    def reading(self) -> None:
        """The data is about to be read."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def begin(self, units: int, done: int) -> None:
        """Training starts: so many units in all epochs together, so many of them done before."""

    def step(self, units: int, loss: float) -> None:
        """A batch of so many units is done."""

    def epoch(self, number: int, scores: Mapping[str, float]) -> None:
        """An epoch, counted from 1, has ended with this loss and these scores on the dev data."""

    def stopping(self) -> None:
        """Ctrl-C was pressed; training ends after the present step."""

    def end(self) -> None:
        """Training is over, whether finished or broken off."""


class Interrupted(Exception):
    """Training was broken off by Ctrl-C, its state saved."""


def train(
    task: "Task[Any, Any, Any]", data: Mapping[str, Sequence[Encoded]], run: Run | None, progress: Progress
) -> dict[str, Any]:
    """Train the task's network, from the run's checkpoint on if there is one, and leave the best weights in it.

    Returns:
        each epoch's scores, those on dev and test of the best one, and the speed

    Raises:
        Interrupted: Ctrl-C was pressed
    """
    options = task.options
    module = _Training(task, data["train"], data["dev"])
    keeper = _Keeper(module, run, progress)
    keeper.restore()
    if not keeper.finished:
        progress.note(f"{module.units_an_epoch:,} units an epoch; {module.padding:.1%} of the batches is padding")
        progress.begin(options.epochs * module.units_an_epoch, module.units)
        if run:
            keeper.logs = Logs(run, task.monitor, module.steps)
        try:
            with _quiet(), _ctrl_c(keeper):
                _trainer(module, keeper).fit(module)
        except SystemExit:  # what Lightning makes of a second Ctrl-C
            if keeper.interrupted:
                raise KeyboardInterrupt from None
            raise
        finally:
            progress.end()
            if keeper.logs:
                keeper.logs.close()
    task.network.load_state_dict(keeper.best)
    task.network.eval()
    best = keeper.history[keeper.best_epoch]
    result = {
        "dev": {name: value for name, value in best.items() if name not in ("epoch", "loss")},
        "test": task.score(data["test"]) if data["test"] else {},
        "best_epoch": best["epoch"],
        "history": keeper.history,
        "seconds": round(module.seconds, 3),
        "units_per_second": round(module.units / max(module.seconds, 1e-9)),
        "padding": round(module.padding, 4),
        "threads": torch.get_num_threads(),
    }
    if run:
        run.finish(result)
        if shown := data["test"] or data["dev"]:
            task.report(shown, run.path)
    return result


def _trainer(module: "_Training", keeper: "_Keeper") -> Trainer:
    options = module.task.options
    if options.device == "cuda" and not torch.cuda.is_available():
        raise OptionError("device: cuda was asked for, and torch finds no such device here; use cpu, or auto")
    return Trainer(
        max_epochs=options.epochs - module.epoch,
        accelerator=options.device,
        devices=1,
        precision=options.precision,
        gradient_clip_val=options.clip or None,
        accumulate_grad_batches=options.accumulate,
        callbacks=[keeper],
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class _Training(LightningModule):
    """A task's network with its place in the training: epoch, and batches done of it.

    Each call of Lightning is a training of its own that starts at this place; Lightning's own counters mean nothing.
    """

    def __init__(self, task: "Task[Any, Any, Any]", data: Sequence[Encoded], dev: Sequence[Encoded]):
        super().__init__()
        self.task = task
        self.network = task.network
        self.metrics = task.metrics()
        self.data = data
        self.dev = dev
        self.units_an_epoch = sum(map(units, data))
        self.epoch = 0
        self.batch = 0
        self.steps = 0
        self.units = 0
        self.seconds = 0.0
        self.batches: Batches = []
        self.optimizer_state: dict[int, dict[str, Tensor]] = {}
        self.scores: dict[str, float] = {}
        self.dev_loss = MeanMetric()
        self.sample = sample(data, _SAMPLE, task.options.seed)
        self.padding = padding(self.order())
        self.taken_rate = 0.0

    def train_dataloader(self) -> Loader:
        self.batches = self.order()
        return Loader(self.data, self.batches, self.task.padding, first=self.batch)

    def order(self) -> Batches:
        """The batches of the present epoch."""
        return self.task.training_batches([units(fields) for fields in self.data], self.epoch)

    def val_dataloader(self) -> Loader | list[Any]:
        if not self.dev:
            return []
        batches = self.task.evaluation_batches([units(fields) for fields in self.dev])
        return Loader(self.dev, batches, self.task.padding)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        options = self.task.options
        optimizer = AdamW(self.network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
        if self.optimizer_state:
            optimizer.load_state_dict(optimizer.state_dict() | {"state": self.optimizer_state})
        schedule = LambdaLR(optimizer, lambda _: self.rate())
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def rate(self) -> float:
        """The share of the largest rate that the next step takes: a climb, then half a cosine."""
        options = self.task.options
        done = (self.epoch + (self.batch + 0.5) / max(1, len(self.batches))) / options.epochs
        if done < options.warmup:
            return done / options.warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - options.warmup) / (1 - options.warmup + 1e-12))))

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        words = np.random.SeedSequence([self.task.options.seed, self.epoch, self.batch]).generate_state(2, np.uint32)
        torch.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.task.loss(self.network(batch), batch)
        self.taken_rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.batch += 1
        self.steps += 1
        return loss

    def on_validation_epoch_start(self) -> None:
        self.dev_loss.reset()
        self.metrics.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        output = self.network(batch)
        self.metrics.update(**self.task.observe(output, batch))
        if self.task.one_loss:
            self.dev_loss.update(self.task.loss(output, batch), batch["lengths"].sum())

    def on_validation_epoch_end(self) -> None:
        self.scores = computed(self.metrics)

    def dev_curves(self) -> dict[str, float]:
        """The dev data's part in the logs."""
        loss = {"loss": float(self.dev_loss.compute())} if self.scores and self.task.one_loss else {}
        return {f"dev_{name}": value for name, value in (loss | self.scores).items()}

    def sample_score(self) -> dict[str, float]:
        """The monitored score on some of the training data, seen as the dev data is."""
        scores = self.task.score(self.sample)
        self.network.train()
        return {name: value for name, value in scores.items() if name == self.task.monitor}


class _Keeper(Callback):
    """Saves the place, the weights and the optimizer's state, keeps the best epoch's weights, and ends the training."""

    def __init__(self, module: _Training, run: Run | None, progress: Progress):
        self.module = module
        self.run = run
        self.progress = progress
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}
        self.loss = 0.0
        self.unlogged = {"loss": 0.0, "units": 0.0}  # summed since the last row of the logs
        self.logs: Logs | None = None
        self.precision: dict[str, Any] = {}
        self.interrupted = False
        self.clock = self.saved = time.monotonic()

    @property
    def best_epoch(self) -> int:
        """The first epoch of the best score on dev; the last one where there is no dev data."""
        monitor = self.module.task.monitor
        scored = [place for place, entry in enumerate(self.history) if monitor in entry]
        sign = -1 if self.module.task.lower_is_better else 1
        last = len(self.history) - 1
        return max(scored, key=lambda place: (sign * self.history[place][monitor], -place), default=last)

    @property
    def finished(self) -> bool:
        options = self.module.task.options
        stale = options.patience and len(self.history) - 1 - self.best_epoch >= options.patience
        return self.module.epoch >= options.epochs or bool(self.history and stale)

    def restore(self) -> None:
        """Go to the place of the run's checkpoint; without one, stay at the start."""
        checkpoint = self.run.load_checkpoint() if self.run else None
        if checkpoint is None or self.run is None:
            return
        tensors, state = checkpoint
        module = self.module
        module.network.load_state_dict(_under(_MODEL, tensors))
        for name, tensor in _under(_BUFFER, tensors).items():
            module.network.register_buffer(name, tensor, persistent=False)
        for name, tensor in _under(_OPTIMIZER, tensors).items():
            number, key = name.split(".")
            module.optimizer_state.setdefault(int(number), {})[key] = tensor
        module.epoch, module.batch, module.steps = state["epoch"], state["batch"], state["steps"]
        module.units, module.seconds = state["units"], state["seconds"]
        self.loss, self.unlogged, self.history = state["loss"], state["unlogged"], state["history"]
        self.precision = state["precision"]
        module.batches = module.order()
        if self.history:
            self.best = self.run.load_model()

    def save(self, trainer: Trainer) -> None:
        """Replace the run's checkpoint by one of this moment."""
        module = self.module
        model = module.network.state_dict()
        tensors = {_MODEL + name: tensor for name, tensor in model.items()}
        tensors |= {_BUFFER + name: tensor for name, tensor in module.network.named_buffers() if name not in model}
        for number, each in trainer.optimizers[0].state_dict()["state"].items():
            tensors |= {f"{_OPTIMIZER}{number}.{key}": tensor for key, tensor in each.items()}
        state = {
            "epoch": module.epoch,
            "batch": module.batch,
            "steps": module.steps,
            "units": module.units,
            "seconds": module.seconds,
            "loss": self.loss,
            "unlogged": self.unlogged,
            "history": self.history,
            "precision": trainer.precision_plugin.state_dict(),
        }
        if self.run:
            if self.logs:
                self.logs.save()  # first, so that the logs know all that the checkpoint does
            self.run.save_checkpoint(tensors, state)
        self.saved = time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.clock = self.saved = time.monotonic()
        trainer.precision_plugin.load_state_dict(self.precision)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        module = self.module
        done, loss = int(batch["lengths"].sum()), float(outputs["loss"]) * module.task.options.accumulate
        module.units += done
        self.loss += loss * done
        self.unlogged["loss"] += loss * done
        self.unlogged["units"] += done
        self._tick()
        self.progress.step(done, loss)
        last = module.batch == len(module.batches)
        if module.steps % module.task.options.log_every == 0 and not last:
            self._log()
        between_steps = module.batch % module.task.options.accumulate == 0
        due = self.interrupted or time.monotonic() - self.saved >= module.task.options.save_every
        # After the last batch the epoch's scores are still to come: the checkpoint waits for them.
        if between_steps and not last and due:
            self.save(trainer)
            self._leave_if_interrupted()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = self.module
        self._tick()
        entry = {"epoch": module.epoch + 1, "loss": self.loss / module.units_an_epoch, **module.scores}
        self.history.append(entry)
        if self.logs:
            named = {f"train_{name}": value for name, value in module.sample_score().items()}
            self._log({**module.dev_curves(), **named})
        module.epoch, module.batch, self.loss = module.epoch + 1, 0, 0.0
        if self.best_epoch == len(self.history) - 1:
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in module.network.state_dict().items()}
            if self.run:
                self.run.save_model(self.best)
        self.progress.epoch(module.epoch, {name: value for name, value in entry.items() if name != "epoch"})
        self.save(trainer)
        if self.logs:
            self.logs.draw(ended=self.finished)
        trainer.should_stop = self.finished
        if not self.finished:
            self._leave_if_interrupted()

    def _log(self, values: Mapping[str, float] | None = None) -> None:
        module = self.module
        if self.logs:
            loss = self.unlogged["loss"] / max(1.0, self.unlogged["units"])
            row = {"epoch": module.epoch + 1, "learning_rate": module.taken_rate, "train_loss": loss, **(values or {})}
            self.logs.add(row, module.steps)
        self.unlogged = {"loss": 0.0, "units": 0.0}

    def _tick(self) -> None:
        now = time.monotonic()
        self.module.seconds += now - self.clock
        self.clock = now

    def _leave_if_interrupted(self) -> None:
        if self.interrupted:
            raise Interrupted


def units(fields: Encoded) -> int:
    """How many units an encoded example has: all its fields' length."""
    return len(next(iter(fields.values())))


def computed(metrics: MetricCollection) -> dict[str, float]:
    """The scores that have a value."""
    scores = {name: float(value) for name, value in metrics.compute().items()}
    return {name: score for name, score in scores.items() if not math.isnan(score)}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@contextmanager
def _ctrl_c(keeper: _Keeper) -> Iterator[None]:
    """Let the first Ctrl-C end the training between two steps, and a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        keeper.interrupted = True
        keeper.progress.stopping()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's notices, and warnings about its own inside, from the user's terminal."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    finally:
        log.setLevel(level)
