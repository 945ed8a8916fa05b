"""Counts, logs and saves the steps of a training, keeps its best weights, and interrupts it after a signal."""

import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from glassgate.tasks.data.batches import interleave_streams
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Interrupted, Progress
from glassgate.tasks.runs import Run
from glassgate.tasks.training.health import Health
from glassgate.tasks.training.logs import Logs
from glassgate.tasks.training.signals import SIGNALS, StopRequest
from glassgate.tasks.training.steps import Step, Training


class Checkpointer:
    """Counts and logs finished steps, saves checkpoints, keeps the weights of the best epoch, and handles signals."""

    def __init__(self, training: Training, run: Run | None, progress: Progress):
        self.training = training
        self.run = run
        self.progress = progress
        self.best: dict[str, Tensor] = {}
        self.logs: Logs | None = None
        self.stop = StopRequest(progress)
        self.health = Health(training.task, training.dev, list(training.task.warnings))
        self.last_tick = self.last_save = time.monotonic()
        self.main_writes_files = training.processes.broadcast(run is not None)
        training.requests = self._requests

    @property
    def best_index(self) -> int:
        """The index of the first epoch with the best dev score; that of the last epoch if this is 0 or absent."""
        scores = self._scores()
        best = max(scores)
        return len(scores) - 1 if best in (0, -math.inf) else scores.index(best)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.training.epoch >= self.training.schedule.total

    def restore(self) -> None:
        """Restore the run's checkpoint, if there is one."""
        training, processes = self.training, self.training.processes
        checkpoint = processes.broadcast(self.run.load_checkpoint() if self.run else None)
        # Moved to the CPU, because all processes would unpickle a GPU tensor on the same GPU.
        initial = {name: tensor.cpu() for name, tensor in training.network.state_dict().items()}
        training.network.load_state_dict(processes.broadcast(initial))
        if checkpoint is None:
            return
        tensors, state = checkpoint
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "buffer": {}, "optimizer": {}}
        for name, tensor in tensors.items():
            part, _, own_name = name.partition(".")
            parts[part][own_name] = tensor
        training.network.load_state_dict(parts["model"])
        for name, tensor in parts["buffer"].items():
            local = processes.shard.of_streams(tensor) if name in training.carried else tensor
            owner, _, attribute = name.rpartition(".")
            module = training.network.get_submodule(owner)
            module.register_buffer(attribute, local.to(training.device), persistent=False)
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts["optimizer"].items():
            index, key = name.split(".")
            optimizer.setdefault(int(index), {})[key] = tensor
        training.optimizer.load_state_dict(training.optimizer.state_dict() | {"state": optimizer})
        for name in training.saved:
            setattr(training, name, state[name])
        training.scaler.load_state_dict(state["precision"])
        self.health.restore(state["health"])
        training.schedule.restore(**state["schedule"])
        training.batches = training.epoch_batches()
        if training.history:
            self.best = processes.broadcast(self.run.load_model() if self.run else {})

    def save(self) -> None:
        """Replace the run's checkpoint. All processes call this; process 0 writes the file."""
        training = self.training
        model = training.network.state_dict()
        buffers = {name: tensor for name, tensor in training.network.named_buffers() if name not in model}
        carried = {name: buffers.pop(name).cpu() for name in training.carried if name in buffers}
        if training.batch:  # each epoch begins without carried states
            shards = training.processes.gather(carried)
            buffers |= {
                name: interleave_streams([shard[name] for shard in shards]) for name in (carried if shards else ())
            }
        self.last_save = time.monotonic()
        if not self.run:
            return
        tensors = {f"model.{name}": tensor for name, tensor in model.items()}
        tensors |= {f"buffer.{name}": tensor for name, tensor in buffers.items()}
        for index, parameter_state in training.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": tensor for key, tensor in parameter_state.items()}
        state = {name: getattr(training, name) for name in training.saved}
        state |= {"precision": training.scaler.state_dict(), "health": self.health.state()}
        state["schedule"] = training.schedule.state()
        if self.logs:
            self.logs.save()  # before the checkpoint is written, so that the logs contain all of its steps
        self.run.save_checkpoint(tensors, state)
        self.last_save = time.monotonic()

    def start(self) -> None:
        """Start two clocks: the training time, and the time since the last checkpoint."""
        self.last_tick = self.last_save = time.monotonic()

    def after_batch(self) -> None:
        """Count and log a batch; save a checkpoint if one is due; stop the training after a signal.

        On a GPU, this is done for several batches at a time, because reading a loss waits for the GPU.
        """
        training, options = self.training, self.training.task.options
        self._add_time()
        last = training.batch == len(training.batches)
        log_due = training.steps % options.log_every == 0 and not last
        single_process = training.processes.size == 1
        if not (training.read_due or log_due or (single_process and any(self._requests()))):
            return
        step = self._count_steps()
        if log_due:
            self._log()
        signal, save_due = self._parse_requests(self._requests() if single_process else step.requests)
        # After the last batch, `after_epoch` saves the checkpoint, with the scores of the epoch.
        if training.batch % options.accumulate == 0 and not last and (signal or save_due):
            self.save()
            if signal:
                raise Interrupted(signal)

    def _count_steps(self) -> Step:
        """Count the steps since the last call, and return the last step."""
        training = self.training
        steps = training.read()
        for step_number, step in enumerate(steps, training.steps - len(steps) + 1):
            self._check_loss(step.loss, step_number)
            self.health.step(step.loss)
            training.units += step.units
            training.loss += step.loss * step.units
            training.unlogged["loss"] += step.loss * step.units
            training.unlogged["units"] += step.units
            self.progress.step(step.units, step.loss)
        for norm in training.read_norms():
            self.health.gradient(norm)
        return steps[-1]

    def after_epoch(self) -> None:
        """Log the scores of an epoch, keep its weights if they are the best, and save a checkpoint."""
        training = self.training
        self._add_time()
        scores = {"loss": training.loss / training.units_per_epoch, **training.scores}
        training.history.append({"epoch": training.epoch + 1, **scores})
        if self.main_writes_files:
            self._log(training.curves() | (training.exponents.values() if self.logs else {}))
        training.epoch, training.batch, training.loss = training.epoch + 1, 0, 0.0
        if self.best_index == len(training.history) - 1:
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in training.network.state_dict().items()}
            if self.run:
                self.run.save_model(self.best)
        self.progress.epoch(training.epoch, training.task.summary.epoch_scores(scores))
        total = training.schedule.total
        if training.dev:
            training.schedule.update(self._scores())
        if training.schedule.total != total:
            self.progress.change((training.schedule.total - total) * training.units_per_epoch)
        for note in self.health.check(training.epoch, training.scores):
            self.progress.note(note)
        self.save()
        if self.logs:
            self.logs.draw(ended=self.finished)
        signal, _ = self._parse_requests(training.processes.sum(torch.tensor(self._requests())).tolist())
        if signal and not self.finished:
            raise Interrupted(signal)

    def _scores(self) -> list[float]:
        """The monitored score of each epoch, with a sign so that larger is better."""
        monitor, sign = self.training.task.monitor, -1 if self.training.task.lower_is_better else 1
        return [sign * entry[monitor] if monitor in entry else -math.inf for entry in self.training.history]

    def _log(self, values: Mapping[str, float] | None = None) -> None:
        training = self.training
        if self.logs:
            loss = training.unlogged["loss"] / max(1.0, training.unlogged["units"])
            row = {"epoch": training.epoch + 1, "learning_rate": training.rate, "train_loss": loss, **(values or {})}
            self.logs.add(row | (training.layer_values or {}), training.steps)
            training.layer_values = {}
        training.unlogged = {"loss": 0.0, "units": 0.0}

    def _check_loss(self, loss: float, step_number: int) -> None:
        """Raise an error if the loss and some weights are not finite. With finite weights, training continues."""
        training = self.training
        if math.isfinite(loss) or all(each.isfinite().all() for each in training.network.parameters()):
            return
        options = training.task.options
        clip = f"a smaller --clip than {options.clip:g}" if options.clip else "clip gradients, as with --clip 1"
        raise UserError(
            f"training has diverged: the loss is {loss} in step {step_number}, epoch {training.epoch + 1}; choose a "
            f"--learning-rate below {options.learning_rate:g}, or {clip}"
        )

    def _add_time(self) -> None:
        """Add the seconds since the last call to the training time."""
        now = time.monotonic()
        self.training.seconds += now - self.last_tick
        self.last_tick = now

    def _requests(self) -> list[float]:
        """The requests of this process as flags, 1 or 0: a stop by each of `SIGNALS`, and a checkpoint."""
        save_due = time.monotonic() - self.last_save >= self.training.task.options.save_every
        stops = [float(self.stop.received == signal) for signal in SIGNALS]
        return [*stops, float(save_due and self.training.processes.is_main)]

    def _parse_requests(self, sums: Sequence[float]) -> tuple[int, bool]:
        """Return the signal that some process has received (0 if none), and whether a checkpoint is due.

        The argument contains the sums of the `_requests` of all processes.
        """
        *stops, save_due = sums
        return next((signal for signal, count in zip(SIGNALS, stops, strict=True) if count), 0), bool(save_due)
