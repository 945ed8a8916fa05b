"""One training of a cell on a problem, until it is solved, makes no progress, or has used all its sequences."""

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

import glassgate as gg
from glassgate.claims.cells import cell_of, hidden_size
from glassgate.claims.problems import PROBLEMS, Batch, Problem

CONSECUTIVE = 2_000
"""A problem is solved if at most `Problem.misses` of the answers to this many consecutive sequences are wrong."""
STALLED_RATIO = 0.99
"""A training stops halfway if fewer than half of its answers are correct and the mean loss of its second quarter is
above this fraction of that of its second eighth."""
TEST_SEQUENCES = 2_560
BATCH_SIZE = 32
UPDATES_PER_POINT = 50
"""Updates between two points of a learning curve."""


@dataclass(frozen=True)
class Trial:
    """The settings of a training.

    Attributes:
        problem, cell: the names of the problem and the cell.
        lag: the lag in steps; 0 for a problem without a choice of lags.
        seed: the seed of weights and sequences.
        sequences: the maximum number of sequences.
        parameters: the maximum number of parameters of the recurrent layer.
        forget_bias: the total bias of the forget gate; None for `gg.init.long_memory`.
        closed: whether the input gate starts almost closed, with the bias `-forget_bias`, so that the state is kept.
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
        """The name of the result's file, without its ending."""
        return "_".join(f"{value}".replace("/", "-").replace(":", "-") for value in asdict(self).values())


class Network(nn.Module):
    """One recurrent layer and a linear output layer."""

    def __init__(self, cell: gg.Cell, problem: Problem, units: int) -> None:
        super().__init__()
        self.layer = gg.Recurrent(cell, problem.features, units)
        self.answer = nn.Linear(units, problem.outputs)
        self.every_step = problem.every_step

    def forward(self, batch: Batch) -> torch.Tensor:
        """Answers (N, outputs) at the end of each sequence, or (L, N, outputs) at every step."""
        output, final_states = self.layer(batch.inputs, lengths=batch.lengths)
        h_n = final_states[0] if isinstance(final_states, tuple) else final_states
        answers: torch.Tensor = self.answer(output if self.every_step else h_n[0])
        return answers


def network_of(trial: Trial) -> Network:
    """Return the network before training."""
    torch.manual_seed(trial.seed)
    problem, cell = PROBLEMS[trial.problem], cell_of(trial.cell)
    network = Network(cell, problem, hidden_size(cell, problem.features, trial.parameters))
    if trial.forget_bias is None:
        gg.init.long_memory(max(trial.lag, 10))(network.layer)
    else:
        gg.init.xavier_orthogonal(network.layer)
        biases = {"f": trial.forget_bias} | ({"i": -trial.forget_bias} if trial.closed else {})
        gg.init.gate_bias(**biases)(network.layer)
    return network


def train(trial: Trial) -> dict[str, Any]:
    """Train and test; return the result as JSON values."""
    torch.set_num_threads(1)
    network, problem = network_of(trial), PROBLEMS[trial.problem]
    generator = torch.Generator().manual_seed(trial.seed)
    updates = max(1, trial.sequences // BATCH_SIZE)
    optimizer = torch.optim.Adam(network.parameters(), lr=trial.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    curve: list[tuple[int, float, float]] = []
    losses, accuracies, solved_after = [], [], None
    latest_right: deque[bool] = deque(maxlen=CONSECUTIVE)
    start = time.process_time()
    for update in range(1, updates + 1):
        batch = problem.make(trial.lag, BATCH_SIZE, generator)
        answers = network(batch)
        loss = problem.loss(answers, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        right = problem.right(answers.detach(), batch)
        latest_right.extend(right.tolist())
        solved = len(latest_right) == CONSECUTIVE and latest_right.count(False) <= problem.misses
        losses.append(loss.item())
        accuracies.append(right.float().mean().item())
        if update % UPDATES_PER_POINT == 0 or solved:
            curve.append((update * BATCH_SIZE, sum(losses) / len(losses), sum(accuracies) / len(accuracies)))
            losses, accuracies = [], []
        if solved:
            solved_after = update * BATCH_SIZE
            break
        if not math.isfinite(loss.item()) or (update == updates // 2 and _learns_nothing(curve)):
            break
    seconds = time.process_time() - start
    return asdict(trial) | {
        "units": network.answer.in_features,
        "recurrent_parameters": sum(p.numel() for p in network.layer.parameters()),
        "sequences_until_solved": solved_after,
        "sequences_seen": update * BATCH_SIZE,
        "wrong_of_2560": _count_wrong(network, problem, trial.lag, generator),
        "curve": curve,
        "seconds": seconds,
        "milliseconds_per_update": 1e3 * seconds / update,
        "kept_megabytes": _saved_bytes(network, problem, batch) / 1e6,
    }


def _learns_nothing(curve: Sequence[tuple[int, float, float]]) -> bool:
    """Whether halfway through a training the loss is flat, and fewer than half of the last answers are correct."""
    quarter = len(curve) // 2
    second_eighth, second_quarter = curve[quarter // 2 : quarter], curve[quarter:]
    if not second_eighth:
        return False
    earlier, later = (sum(loss for _, loss, _ in part) / len(part) for part in (second_eighth, second_quarter))
    return later > STALLED_RATIO * earlier and second_quarter[-1][2] < 0.5


def _saved_bytes(network: Network, problem: Problem, batch: Batch) -> int:
    """The number of bytes that autograd saves for the backward pass of an update."""
    sizes: dict[int, int] = {}  # by address

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = problem.loss(network(batch), batch)
    del loss  # the storages are alive until here, so each address is counted once
    return sum(sizes.values())


@torch.no_grad()
def _count_wrong(network: Network, problem: Problem, lag: int, generator: torch.Generator) -> int:
    batches = (problem.make(lag, 256, generator) for _ in range(TEST_SEQUENCES // 256))
    return sum(int((~problem.right(network(batch), batch)).sum()) for batch in batches)
