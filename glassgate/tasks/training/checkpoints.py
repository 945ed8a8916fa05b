"""Checkpoints, best weights, scores and logs of a running training, and its end."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from glassgate.tasks.data.batches import Batch, joined_streams
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Interrupted, Progress
from glassgate.tasks.runs import Run
from glassgate.tasks.training.health import Health
from glassgate.tasks.training.logs import Logs
from glassgate.tasks.training.module import Training
from glassgate.tasks.training.signals import SIGNALS, Stop

_MODEL = "model."
_BUFFER = "buffer."
_OPTIMIZER = "optimizer."


class Keeper(Callback):
    """Saves the place, the weights and the optimizer's state, keeps the best epoch's weights, and ends the training."""

    def __init__(self, module: Training, run: Run | None, progress: Progress):
        self.module = module
        self.run = run
        self.progress = progress
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}
        self.loss = 0.0
        self.unlogged = {"loss": 0.0, "units": 0.0}  # summed since the last row of the logs
        self.logs: Logs | None = None
        self.precision: dict[str, Any] = {}
        self.stop = Stop(progress)
        self.health = Health(module.task, module.dev, list(module.task.warnings))
        self.clock = self.saved = time.monotonic()
        self.logged = module.processes.first(run is not None)
        module.asks = self._asks

    @property
    def best_epoch(self) -> int:
        """The first epoch of the best score on dev; the last one where none has a score, or none got anything right."""
        scores = self._scores()
        best = max(scores)
        return len(scores) - 1 if best in (0, -math.inf) else scores.index(best)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train."""
        return self.module.epoch >= self.module.schedule.total

    def restore(self) -> None:
        """Go to the place of the run's checkpoint; without one, stay at the start."""
        module, processes = self.module, self.module.processes
        checkpoint = processes.first(self.run.load_checkpoint() if self.run else None)
        module.network.load_state_dict(processes.first(module.network.state_dict()))
        if checkpoint is None:
            return
        tensors, state = checkpoint
        module.network.load_state_dict(_under(_MODEL, tensors))
        for name, tensor in _under(_BUFFER, tensors).items():
            own = processes.share.of_streams(tensor) if name in module.carried else tensor
            module.network.register_buffer(name, own, persistent=False)
        for name, tensor in _under(_OPTIMIZER, tensors).items():
            number, key = name.split(".")
            module.optimizer_state.setdefault(int(number), {})[key] = tensor
        module.epoch, module.batch, module.steps = state["epoch"], state["batch"], state["steps"]
        module.units, module.seconds = state["units"], state["seconds"]
        self.loss, self.unlogged, self.history = state["loss"], state["unlogged"], state["history"]
        self.precision = state["precision"]
        self.health.restore(state.get("health", {}))
        module.schedule.restore(**state.get("schedule", {}))
        module.batches = module.order()
        if self.history:
            self.best = processes.first(self.run.load_model() if self.run else {})

    def save(self, trainer: Trainer) -> None:
        """Replace the run's checkpoint by one of this moment; all processes do, and the first one writes it."""
        module = self.module
        model = module.network.state_dict()
        buffers = {name: tensor for name, tensor in module.network.named_buffers() if name not in model}
        carried = {name: buffers.pop(name).cpu() for name in module.carried if name in buffers}
        if module.batch:  # each epoch begins without
            shares = module.processes.gathered(carried)
            buffers |= {name: joined_streams([share[name] for share in shares]) for name in (carried if shares else ())}
        self.saved = time.monotonic()
        if not self.run:
            return
        tensors = {_MODEL + name: tensor for name, tensor in model.items()}
        tensors |= {_BUFFER + name: tensor for name, tensor in buffers.items()}
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
            "health": self.health.state(),
            "schedule": module.schedule.state(),
        }
        if self.logs:
            self.logs.save()  # first, so that the logs know all that the checkpoint does
        self.run.save_checkpoint(tensors, state)
        self.saved = time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stop.listen()
        self.clock = self.saved = time.monotonic()
        trainer.precision_plugin.load_state_dict(self.precision)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Measure some of the gradients, before they are clipped."""
        if self.health.measures(self.module.batch):
            norms = [each.grad.norm() for each in self.module.network.parameters() if each.grad is not None]
            self.health.gradient(float(torch.stack(norms).norm()))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        module = self.module
        loss, done = module.step
        self._check_loss(loss)
        self.health.step(loss)
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
        number, due = self._asked(module.answers if module.processes.size > 1 else self._asks())
        # After the last batch the epoch's scores are still to come: the checkpoint waits for them.
        if between_steps and not last and (number or due):
            self.save(trainer)
            self._leave_if(number)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = self.module
        self._tick()
        entry = {"epoch": module.epoch + 1, "loss": self.loss / module.units_an_epoch, **module.scores}
        self.history.append(entry)
        if self.logged:
            named = {f"train_{name}": value for name, value in module.sample_score().items()}
            self._log({**module.dev_curves(), **named})
        module.epoch, module.batch, self.loss = module.epoch + 1, 0, 0.0
        if self.best_epoch == len(self.history) - 1:
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in module.network.state_dict().items()}
            if self.run:
                self.run.save_model(self.best)
        self.progress.epoch(module.epoch, module.task.summary.brief({k: v for k, v in entry.items() if k != "epoch"}))
        total = module.schedule.total
        if module.dev:
            module.schedule.after(self._scores())
        if module.schedule.total != total:
            self.progress.change((module.schedule.total - total) * module.units_an_epoch)
        for sentence in self.health.check(module.epoch, module.scores):
            self.progress.note(f"warning: {sentence}")
        self.save(trainer)
        if self.logs:
            self.logs.draw(ended=self.finished)
        trainer.should_stop = self.finished
        number, _ = self._asked(module.processes.sum(self._asks()))
        if not self.finished:
            self._leave_if(number)

    def _scores(self) -> list[float]:
        """The monitored score of each epoch, more is better."""
        monitor, sign = self.module.task.monitor, -1 if self.module.task.lower_is_better else 1
        return [sign * entry[monitor] if monitor in entry else -math.inf for entry in self.history]

    def _log(self, values: Mapping[str, float] | None = None) -> None:
        module = self.module
        if self.logs:
            loss = self.unlogged["loss"] / max(1.0, self.unlogged["units"])
            row = {"epoch": module.epoch + 1, "learning_rate": module.taken_rate, "train_loss": loss, **(values or {})}
            self.logs.add(row | (module.watched or {}), module.steps)
            module.watched = {}
        self.unlogged = {"loss": 0.0, "units": 0.0}

    def _check_loss(self, loss: float) -> None:
        """Check the loss; NaN or infinity is accepted if the step was skipped and the weights are finite."""
        module = self.module
        if math.isfinite(loss) or all(each.isfinite().all() for each in module.network.parameters()):
            return
        options = module.task.options
        clip = f"a smaller --clip than {options.clip:g}" if options.clip else "clip gradients, as with --clip 1"
        raise UserError(
            f"training has diverged: the loss is {loss} in step {module.steps}, epoch {module.epoch + 1}; choose a "
            f"--learning-rate below {options.learning_rate:g}, or {clip}"
        )

    def _tick(self) -> None:
        now = time.monotonic()
        self.module.seconds += now - self.clock
        self.clock = now

    def _asks(self) -> list[float]:
        """What this process asks of all: to stop for a signal, for each one that there is, and to save."""
        late = time.monotonic() - self.saved >= self.module.task.options.save_every
        signals = [float(self.stop.received == number) for number in SIGNALS]
        return [*signals, float(late and self.module.processes.leads)]

    def _asked(self, sums: Sequence[float]) -> tuple[int, bool]:
        """The signal to stop for, 0 for none, and whether to save, of what all ask."""
        *signals, due = sums
        return next((number for number, asked in zip(SIGNALS, signals, strict=True) if asked), 0), bool(due)

    def _leave_if(self, number: int) -> None:
        if number:
            raise Interrupted(number)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
