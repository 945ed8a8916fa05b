"""Constraints on weight matrices that hold after every optimiser step: Dale's law, connectivity, rank, spectrum, sign.

A constraint is a parametrization of `torch.nn.utils.parametrize`: the optimiser updates an unconstrained parameter, and
the layer reads the constrained matrix that is computed from it. `torch.nn.utils.parametrize.remove_parametrizations`
turns the constrained matrix into a plain parameter again.
"""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from glassgate.layers.stack import Recurrent


class Constraint(nn.Module):
    """The base class of constraints on a weight matrix.

    A subclass computes the constrained matrix in `forward`. It may read the shape and the initial weights in `prepare`.

    Attributes:
        elementwise: whether the constraint still holds when later constraints change single weights (absolute value,
            sign, zero) or scale the matrix of a gate. A constraint for which this is false must be the first.
    """

    elementwise = True

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Sets up the constraint for a matrix (blocks * rows, columns), in which each gate has one block of rows.

        Raises:
            ValueError: the constraint does not fit the matrix.
        """

    def forward(self, weight: Tensor) -> Tensor:
        """The constrained matrix."""
        raise NotImplementedError

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The initial value of the unconstrained parameter."""
        return weight


class NonNegative(Constraint):
    """All weights are at least 0: the absolute values of the unconstrained parameter."""

    def forward(self, weight: Tensor) -> Tensor:
        """The constrained matrix, (rows, columns)."""
        return weight.abs()


class Dale(Constraint):
    """Dale's law: each unit either excites or inhibits all others (Song et al. 2016, doi:10.1371/journal.pcbi.1004792).

    The weights in the column of a sending unit have one sign. The initial weights keep their magnitudes.

    Args:
        excitatory: the fraction of sending units that excite (the first ones), or a mask of them, (columns,).

    Raises:
        ValueError: a fraction outside [0, 1].
    """

    signs: Tensor

    def __init__(self, excitatory: float | Sequence[bool] | Tensor = 0.8) -> None:
        super().__init__()
        if isinstance(excitatory, float | int) and not 0 <= excitatory <= 1:
            raise ValueError(f"Dale: excitatory must be a fraction from 0 to 1 or a mask of units, got {excitatory!r}")
        self.excitatory = excitatory

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Stores the sign of each column."""
        columns = weight.shape[1]
        if isinstance(self.excitatory, float | int):
            mask = torch.arange(columns) < round(self.excitatory * columns)
        else:
            mask = torch.as_tensor(self.excitatory, dtype=torch.bool)
        if mask.shape != (columns,):
            raise ValueError(f"Dale: the mask must be ({columns},), one per sending unit, got {tuple(mask.shape)}")
        self.register_buffer("signs", torch.where(mask, 1.0, -1.0).to(weight))

    def forward(self, weight: Tensor) -> Tensor:
        """The constrained matrix, (rows, columns)."""
        return weight.abs() * self.signs


class Sparse(Constraint):
    """Only some connections exist; all other weights are exactly 0.

    Args:
        connections: the fraction of connections that exist, drawn at random and equal for all gates; or a mask,
            (units, columns) for all gates or (gates * units, columns).
        seed: the seed of the random mask.

    Raises:
        ValueError: a fraction outside (0, 1].
    """

    mask: Tensor

    def __init__(self, connections: float | Tensor, seed: int = 0) -> None:
        super().__init__()
        if isinstance(connections, float | int) and not 0 < connections <= 1:
            raise ValueError(f"Sparse: connections must be a fraction above 0, up to 1, or a mask, got {connections!r}")
        self.connections, self.seed = connections, seed

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Stores the mask of the whole matrix."""
        units, columns = weight.shape[0] // blocks, weight.shape[1]
        if isinstance(self.connections, Tensor):
            mask = self.connections.to(torch.bool)
        else:
            random = torch.Generator().manual_seed(self.seed)
            mask = torch.rand(units, columns, generator=random) < self.connections
        if mask.shape == (units, columns):
            mask = mask.repeat(blocks, 1)
        if mask.shape != weight.shape:
            raise ValueError(
                f"Sparse: the mask must be (units, columns) = {(units, columns)} or {tuple(weight.shape)}, "
                f"got {tuple(mask.shape)}"
            )
        self.register_buffer("mask", mask.to(weight))

    def forward(self, weight: Tensor) -> Tensor:
        """The constrained matrix, (rows, columns)."""
        return weight * self.mask


class Areas(Sparse):
    """Units belong to areas, and only some areas send to others (Yang et al. 2019, doi:10.1038/s41593-018-0310-2).

    Args:
        sizes: the number of units in each area; areas are consecutive.
        connections: (areas, areas), true where the area of the column sends to the area of the row.

    Raises:
        ValueError: connections is not (areas, areas).
    """

    def __init__(self, sizes: Sequence[int], connections: Sequence[Sequence[bool]] | Tensor) -> None:
        between = torch.as_tensor(connections, dtype=torch.bool)
        if between.shape != (len(sizes), len(sizes)):
            raise ValueError(
                f"Areas: connections must be ({len(sizes)}, {len(sizes)}), one row and column for each area, "
                f"got {tuple(between.shape)}"
            )
        counts = torch.tensor(list(sizes))
        super().__init__(between.repeat_interleave(counts, 0).repeat_interleave(counts, 1))


class LowRank(Constraint):
    """Each gate's matrix has a low rank, as the product of two learned factors (Mastrogiuseppe and Ostojic 2018).

    Training starts from the best approximation of the weights, by their largest singular values.

    Args:
        rank: the rank of each gate's matrix.
    """

    elementwise = False

    def __init__(self, rank: int) -> None:
        super().__init__()
        if not isinstance(rank, int) or rank < 1:
            raise ValueError(f"LowRank: rank must be a whole number from 1 on, got {rank!r}")
        self.rank, self.blocks = rank, 1

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Stores the number of gates."""
        self.blocks = blocks
        if self.rank > min(weight.shape[0] // blocks, weight.shape[1]):
            size = (weight.shape[0] // blocks, weight.shape[1])
            raise ValueError(f"LowRank: rank must be at most {min(size)} for matrices {size}, got {self.rank}")

    def forward(self, left: Tensor, right: Tensor) -> Tensor:  # type: ignore[override]
        """The constrained matrix, (rows, columns), from factors (gates, units, rank) and (gates, rank, columns)."""
        return (left @ right).flatten(0, 1)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """The initial factors."""
        u, singular, v = torch.linalg.svd(weight.unflatten(0, (self.blocks, -1)), full_matrices=False)
        root = singular[:, : self.rank].sqrt()
        return u[:, :, : self.rank] * root.unsqueeze(1), root.unsqueeze(2) * v[:, : self.rank]


class Orthogonal(Constraint):
    """Each gate's matrix is orthogonal, by the Cayley transform (Helfrich et al. 2018, arXiv:1707.09520).

    Training starts from the orthogonal matrix that is nearest to the weights.
    """

    elementwise = False
    base: Tensor

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Stores the nearest orthogonal matrices, (gates, units, units)."""
        matrices = weight.detach().unflatten(0, (blocks, -1))
        if matrices.shape[1] != matrices.shape[2]:
            raise ValueError(f"Orthogonal: each gate's matrix must be square, got {tuple(matrices.shape[1:])}")
        u, _, v = torch.linalg.svd(matrices)
        self.register_buffer("base", u @ v)

    def forward(self, weight: Tensor) -> Tensor:
        """The constrained matrix, (rows, columns)."""
        skew = weight.unflatten(0, (len(self.base), -1))
        skew = skew - skew.mT
        identity = torch.eye(skew.shape[1], dtype=weight.dtype, device=weight.device)
        return (self.base @ torch.linalg.solve(identity + skew, identity - skew)).flatten(0, 1)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Zero, which gives the nearest orthogonal matrix."""
        return torch.zeros_like(weight)


class SpectralRadius(Constraint):
    """The largest magnitude of an eigenvalue of each gate's matrix is at most a limit.

    A matrix with a larger eigenvalue is scaled down.

    Args:
        limit: the largest magnitude, above 0.
    """

    def __init__(self, limit: float = 1.0) -> None:
        super().__init__()
        if not limit > 0:
            raise ValueError(f"SpectralRadius: limit must be above 0, got {limit!r}")
        self.limit, self.blocks = limit, 1

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Stores the number of gates."""
        self.blocks = blocks
        if weight.shape[0] // blocks != weight.shape[1]:
            size = (weight.shape[0] // blocks, weight.shape[1])
            raise ValueError(f"SpectralRadius: each gate's matrix must be square, got {size}")

    def forward(self, weight: Tensor) -> Tensor:
        """The constrained matrix, (rows, columns)."""
        matrices = weight.unflatten(0, (self.blocks, -1))
        with torch.no_grad():
            radius = torch.linalg.eigvals(matrices).abs().amax(1)
            factor = (self.limit / radius.clamp_min(torch.finfo(weight.dtype).tiny)).clamp_max(1)
        return (matrices * factor[:, None, None]).flatten(0, 1)


def constrain(layer: Recurrent, *constraints: Constraint, weight: str = "weight_hh") -> Recurrent:
    """Constrain a weight matrix of every layer and direction, or one matrix, for the rest of its training.

    Constraints are applied in the given order. `Orthogonal` must be the only one. `LowRank` must be the first, and only
    `SpectralRadius` may follow it. `SpectralRadius` must be the last.

    Args:
        layer: the matrices given by `weight` become parametrized, in place. Create the optimiser afterwards, because
            the unconstrained parameters are new. The `state_dict` calls them `parametrizations.weight_hh_l0.original`.
        constraints: objects of `gg.constraints`.
        weight: "weight_hh", "weight_ih" or "weight_hr" in all layers and directions, or a full name like
            "weight_hh_l1_reverse".

    Returns:
        The layer.

    Raises:
        KeyError: the layer has no such parameter.
        ValueError: a constraint does not fit the matrix or another constraint.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.RNN(3, 10, nonlinearity="relu")
        >>> _ = gg.constrain(layer, gg.constraints.Dale(0.8), gg.constraints.Sparse(0.5))
        >>> bool((layer.weight_hh_l0[:, :8] >= 0).all()), bool((layer.weight_hh_l0[:, 8:] <= 0).all())
        (True, True)
    """
    if not isinstance(layer, Recurrent):
        raise TypeError(f"constrain: layer must be a glassgate layer such as gg.LSTM, got {type(layer).__name__}")
    parts = layer.glassgate.parts
    names = [full for part in parts for short, full in part.names.items() if weight in (short, full)]
    if not names or not weight.startswith("weight_"):
        matrices = [full for part in parts for full in part.names.values() if full.startswith("weight_")]
        raise KeyError(f"constrain: the layer has no {weight!r}; it has {', '.join(matrices)}")
    _check_order(constraints)
    for full in names:
        if parametrize.is_parametrized(layer, full):
            raise ValueError(
                f"constrain: {full} is already constrained; pass all its constraints in one call, or remove them by "
                "torch.nn.utils.parametrize.remove_parametrizations"
            )
        blocks = len(layer.cell.gates) if not full.startswith("weight_hr") else 1
        for constraint in constraints:
            constraint = deepcopy(constraint)  # each matrix has its own buffers
            constraint.prepare(getattr(layer, full).detach(), blocks)
            parametrize.register_parametrization(layer, full, constraint)
    return layer


def _check_order(constraints: Sequence[Constraint]) -> None:
    if not constraints:
        raise ValueError("constrain: pass at least one constraint of gg.constraints")
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise TypeError(f"constrain: constraints must be objects of gg.constraints, got {constraint!r}")
    for k, constraint in enumerate(constraints):
        after = constraints[k + 1 :]
        broken = [
            other for other in after if not (isinstance(other, SpectralRadius) and isinstance(constraint, LowRank))
        ]
        if not constraint.elementwise and (broken or k > 0):
            raise ValueError(
                f"constrain: {type(constraint).__name__} must be the first constraint"
                f"{'' if isinstance(constraint, LowRank) else ' and the only one'}, because others break it; got "
                f"{', '.join(type(each).__name__ for each in constraints)}"
            )
        if isinstance(constraint, SpectralRadius) and after:
            raise ValueError(
                "constrain: SpectralRadius must be the last constraint, because others change the eigenvalues; got "
                f"{', '.join(type(each).__name__ for each in constraints)}"
            )
