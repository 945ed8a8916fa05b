"""One training: a cell, a problem, a lag and a seed, until it is solved or a number of sequences is spent."""

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

import glassgate as gg
from glassgate.claims.contestants import cell_of, hidden_size
from glassgate.claims.problems import PROBLEMS, Batch, Problem

IN_A_ROW = 2_000
"""The last sequences, all of which must be right for a problem to count as solved (section 5.4 of the paper)."""
LEARNING = 0.99
"""A training whose loss in its second quarter is above this part of the loss just before is given up."""
TESTED = 2_560
BATCH = 32
EVERY = 50
"""Updates between two points of a learning curve."""


@dataclass(frozen=True)
class Trial:
    """What is trained.

    Attributes:
        problem, cell: their names.
        lag: steps; 0 where the problem has its own.
        seed: what weights and sequences follow from.
        sequences: the most that are shown.
        parameters: the most that the recurrent layer has.
        forget_bias: the total bias of the forget gate; None for the recipe of long memory, `gg.init.long_memory`.
        closed: whether the input gate then starts at minus that, so that a state which is kept is not written to.
        learning_rate: Adam's at the start; it falls to zero along a cosine.
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
    def key(self) -> str:
        """Its name among files."""
        return "_".join(f"{value}".replace("/", "-").replace(":", "-") for value in asdict(self).values())


class Network(nn.Module):
    """One recurrent layer and a linear answer from its output."""

    def __init__(self, cell: gg.Cell, problem: Problem, units: int) -> None:
        super().__init__()
        self.layer = gg.Recurrent(cell, problem.features, units)
        self.answer = nn.Linear(units, problem.outputs)
        self.every_step = problem.every_step

    def forward(self, batch: Batch) -> torch.Tensor:
        """Answers (N, outputs) at the end of each sequence, or (L, N, outputs) at every step."""
        output, final = self.layer(batch.inputs, lengths=batch.lengths)
        last = final[0] if isinstance(final, tuple) else final
        answers: torch.Tensor = self.answer(output if self.every_step else last[0])
        return answers


def network_of(trial: Trial) -> Network:
    """The network before its training."""
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
    """Train and test; all that is known of the trial, as JSON has it."""
    torch.set_num_threads(1)
    network, problem = network_of(trial), PROBLEMS[trial.problem]
    generator = torch.Generator().manual_seed(trial.seed)
    updates = max(1, trial.sequences // BATCH)
    optimizer = torch.optim.Adam(network.parameters(), lr=trial.learning_rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    curve: list[tuple[int, float, float]] = []
    losses, rights, solved_after = [], [], None
    latest: deque[bool] = deque(maxlen=IN_A_ROW)
    start = time.process_time()
    for update in range(1, updates + 1):
        batch = problem.make(trial.lag, BATCH, generator)
        answers = network(batch)
        loss = problem.loss(answers, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        falling.step()
        right = problem.right(answers.detach(), batch)
        latest.extend(right.tolist())
        solved = len(latest) == IN_A_ROW and latest.count(False) <= problem.misses
        losses.append(loss.item())
        rights.append(right.float().mean().item())
        if update % EVERY == 0 or solved:
            curve.append((update * BATCH, sum(losses) / len(losses), sum(rights) / len(rights)))
            losses, rights = [], []
        if solved:
            solved_after = update * BATCH
            break
        if not math.isfinite(loss.item()) or (update == updates // 2 and _learns_nothing(curve)):
            break
    seconds = time.process_time() - start
    return asdict(trial) | {
        "units": network.answer.in_features,
        "recurrent_parameters": sum(p.numel() for p in network.layer.parameters()),
        "sequences_until_solved": solved_after,
        "sequences_seen": update * BATCH,
        "wrong_of_2560": _wrong(network, problem, trial.lag, generator),
        "curve": curve,
        "seconds": seconds,
        "milliseconds_per_update": 1e3 * seconds / update,
        "kept_megabytes": _kept(network, problem, batch) / 1e6,
    }


def _learns_nothing(curve: Sequence[tuple[int, float, float]]) -> bool:
    """Whether the first half of a training is so flat that the second is spared; few of its answers are right, too."""
    quarter = len(curve) // 2
    before, after = curve[quarter // 2 : quarter], curve[quarter:]
    if not before:
        return False
    loss_before, loss_after = (sum(loss for _, loss, _ in part) / len(part) for part in (before, after))
    return loss_after > LEARNING * loss_before and after[-1][2] < 0.5


def _kept(network: Network, problem: Problem, batch: Batch) -> int:
    """How many bytes an update keeps for its backward pass."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = problem.loss(network(batch), batch)
    del loss  # until here every storage lives, so that none is counted for another
    return sum(kept.values())


@torch.no_grad()
def _wrong(network: Network, problem: Problem, lag: int, generator: torch.Generator) -> int:
    batches = (problem.make(lag, 256, generator) for _ in range(TESTED // 256))
    return sum(int((~problem.right(network(batch), batch)).sum()) for batch in batches)
