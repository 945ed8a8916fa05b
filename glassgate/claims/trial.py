"""A trial: one training of a cell on a problem.

It ends when the problem is solved, when the loss is NaN or infinite, or after the maximum number of sequences. A
training without progress ends after half of its updates.
"""

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import nn

import glassgate as gg
from glassgate.claims.cells import cell_of, hidden_size
from glassgate.claims.problems import PROBLEMS, Batch, Problem

VERSION = 2
"""The version of stored results. In version 1, the initial biases of some cells had the wrong sign."""
CONSECUTIVE = 2_000
"""The number of latest answers that decide whether a problem is solved: at most `Problem.misses` may be wrong."""
STALLED_RATIO = 0.99
"""A training stops at half of its updates if two conditions hold. From its second eighth to its second quarter, the
mean loss falls to no less than this fraction, and fewer than half of its latest answers are correct."""
TEST_SEQUENCES = 2_560
"""The number of sequences on which a trained network is tested."""
BATCH_SIZE = 32
UPDATES_PER_POINT = 50
"""The number of updates that a point of a learning curve averages."""


@dataclass(frozen=True)
class Trial:
    """The settings of a training.

    Attributes:
        problem, cell: the names of the problem and the cell.
        lag: the lag in steps; 0 for a problem with a fixed lag.
        seed: the seed of weights and sequences.
        sequences: the maximum number of sequences.
        parameters: the maximum number of parameters of the recurrent layer.
        forget_bias: the total bias of the forget gate; None for the values of `start`.
        closed: whether the initial bias of the input gate is `-forget_bias`, which almost closes the gate.
        learning_rate: the initial learning rate of Adam, which decays to zero along a cosine.
    """

    problem: str
    cell: str
    lag: int
    seed: int
    sequences: int
    parameters: int
    forget_bias: float | None = None
    closed: bool = False
    learning_rate: float = 0.01

    @property
    def file_name(self) -> str:
        """The name of the file with the result, without its suffix."""
        return "_".join(f"{value}".replace("/", "-").replace(":", "-") for value in asdict(self).values())


@dataclass(frozen=True)
class Measured:
    """The measurements of a trial.

    Attributes:
        units, recurrent_parameters: the size of the recurrent layer.
        sequences_until_solved: None if the problem was not solved.
        sequences_seen: the number of sequences of the training.
        wrong_of_2560: the number of wrong answers of the trained network.
        curve: the number of sequences, the mean loss and the fraction of correct answers, by time.
        seconds, milliseconds_per_update: processor times.
        kept_megabytes: the memory of an update for its backward pass.
    """

    units: int
    recurrent_parameters: int
    sequences_until_solved: int | None
    sequences_seen: int
    wrong_of_2560: int
    curve: list[tuple[int, float, float]]
    seconds: float
    milliseconds_per_update: float
    kept_megabytes: float


class Network(nn.Module):
    """One recurrent layer and a linear output layer."""

    def __init__(self, cell: gg.Cell, problem: Problem, units: int) -> None:
        super().__init__()
        self.layer = gg.Recurrent(cell, problem.features, units)
        self.answer = nn.Linear(units, problem.outputs)
        self.every_step = problem.every_step

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the answers (N, outputs) at the end of each sequence, or (L, N, outputs) at every step."""
        output, final_states = self.layer(batch.inputs, lengths=batch.lengths)
        h_n = final_states[0] if isinstance(final_states, tuple) else final_states
        answers: torch.Tensor = self.answer(output if self.every_step else h_n[0])
        return answers

    def update(self, problem: Problem, batch: Batch, optimizer: torch.optim.Optimizer) -> tuple[torch.Tensor, float]:
        """Make a training step. Returns the answers and the loss before it."""
        answers = self(batch)
        loss = problem.loss(answers, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        optimizer.step()
        return answers.detach(), loss.item()


def start(cell: gg.Cell, units: int, lag: int) -> tuple[str, str]:
    """Return the name of the initialisation of a cell for a lag, and the reason why it is not "long_memory", if so.

    Cells without a gate that can keep a state for this lag start from "xavier_orthogonal". Those whose gates that keep
    a state cannot be derived start from "torch".
    """
    reason = ""
    for name, scheme in _schemes(lag).items():
        try:
            gg.Recurrent(cell, 1, units, init=scheme)
            return name, reason
        except ValueError as error:
            reason = reason or str(error).partition("; use")[0]
    raise AssertionError("`gg.init.torch` is for every cell")


def _schemes(lag: int) -> dict[str, Any]:
    """Initialisations by name, the preferred ones first."""
    scheme = gg.init
    return {
        "long_memory": scheme.long_memory(max(lag, 10)),
        "xavier_orthogonal": scheme.xavier_orthogonal,
        "torch": scheme.torch,
    }


def initial_network(trial: Trial) -> Network:
    """Return the network of a trial before training."""
    problem, cell = PROBLEMS[trial.problem], cell_of(trial.cell)
    units = hidden_size(cell, problem.features, trial.parameters)
    scheme, _ = start(cell, units, trial.lag)
    torch.manual_seed(trial.seed)
    network = Network(cell, problem, units)
    if trial.forget_bias is None:
        _schemes(trial.lag)[scheme](network.layer)
    else:
        gg.init.xavier_orthogonal(network.layer)
        biases = {"f": trial.forget_bias} | ({"i": -trial.forget_bias} if trial.closed else {})
        gg.init.gate_bias(**biases)(network.layer)
    return network


def train(trial: Trial) -> dict[str, Any]:
    """Run a trial. Returns the settings and the results as JSON values."""
    torch.set_num_threads(1)
    network, problem = initial_network(trial), PROBLEMS[trial.problem]
    generator = torch.Generator().manual_seed(trial.seed)
    updates = max(1, trial.sequences // BATCH_SIZE)
    optimizer = torch.optim.Adam(network.parameters(), lr=trial.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    curve: list[tuple[int, float, float]] = []
    losses, accuracies, solved_after = [], [], None
    latest_answers: deque[bool] = deque(maxlen=CONSECUTIVE)
    start = time.process_time()
    for update in range(1, updates + 1):
        batch = problem.make(trial.lag, BATCH_SIZE, generator)
        answers, loss = network.update(problem, batch, optimizer)
        schedule.step()
        is_correct = problem.is_correct(answers, batch)
        latest_answers.extend(is_correct.tolist())
        solved = len(latest_answers) == CONSECUTIVE and latest_answers.count(False) <= problem.misses
        losses.append(loss)
        accuracies.append(is_correct.float().mean().item())
        if update % UPDATES_PER_POINT == 0 or solved:
            curve.append((update * BATCH_SIZE, sum(losses) / len(losses), sum(accuracies) / len(accuracies)))
            losses, accuracies = [], []
        if solved:
            solved_after = update * BATCH_SIZE
            break
        if not math.isfinite(loss) or (update == updates // 2 and _makes_no_progress(curve)):
            break
    seconds = time.process_time() - start
    measured = Measured(
        network.answer.in_features,
        sum(p.numel() for p in network.layer.parameters()),
        solved_after,
        update * BATCH_SIZE,
        _count_wrong(network, problem, trial.lag, generator),
        curve,
        seconds,
        1e3 * seconds / update,
        _saved_bytes(network, problem, batch) / 1e6,
    )
    return {"version": VERSION} | asdict(trial) | asdict(measured)


def is_result_of(trial: Trial, result: object) -> bool:
    """Whether a value is a complete result of this trial, of the current version."""
    names = {each.name for each in fields(Measured)}
    settings = {"version": VERSION} | asdict(trial)
    return isinstance(result, dict) and names <= result.keys() and settings.items() <= result.items()


def _makes_no_progress(curve: Sequence[tuple[int, float, float]]) -> bool:
    """Whether the loss does not fall and fewer than half of the latest answers are correct (see `STALLED_RATIO`)."""
    quarter = len(curve) // 2
    second_eighth, second_quarter = curve[quarter // 2 : quarter], curve[quarter:]
    if not second_eighth:
        return False
    earlier, later = (sum(loss for _, loss, _ in part) / len(part) for part in (second_eighth, second_quarter))
    return later > STALLED_RATIO * earlier and second_quarter[-1][2] < 0.5


def _saved_bytes(network: Network, problem: Problem, batch: Batch) -> int:
    """The number of bytes that autograd saves for the backward pass of an update."""
    sizes: dict[int, int] = {}  # by address

    def record_size(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record_size, lambda tensor: tensor):
        loss = problem.loss(network(batch), batch)
    del loss  # until here, `loss` keeps all storages alive, so no address is used twice
    return sum(sizes.values())


@torch.no_grad()
def _count_wrong(network: Network, problem: Problem, lag: int, generator: torch.Generator) -> int:
    batches = (problem.make(lag, 256, generator) for _ in range(TEST_SEQUENCES // 256))
    return sum(int((~problem.is_correct(network(batch), batch)).sum()) for batch in batches)
