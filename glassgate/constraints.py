"""Constraints on weight matrices that hold after every optimiser step: sign, connectivity, rank, eigenvalues.

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

    A subclass computes the constrained matrix in `forward`. In `prepare` it can read the shape and the initial weights.

    Attributes:
        elementwise: whether the constraint still holds after later constraints change single weights (absolute value,
            sign, zero) or scale the matrix of a gate. If false, the constraint must be the first. The attribute has no
            meaning for `SpectralRadius`, which must be the last.
    """

    elementwise = True

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Set up the constraint for a matrix.

        Args:
            weight: the initial weights, (blocks * rows, columns).
            blocks: the number of blocks of rows, one per gate.

        Raises:
            ValueError: the constraint does not fit the matrix.
        """

    def forward(self, weight: Tensor) -> Tensor:
        """Return the constrained matrix."""
        raise NotImplementedError

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the initial value of the unconstrained parameter, from the initial weights."""
        return weight


class NonNegative(Constraint):
    """All weights are at least 0. They are the absolute values of the unconstrained parameter."""

    def forward(self, weight: Tensor) -> Tensor:
        """Return the constrained matrix, (rows, columns)."""
        return weight.abs()


class Dale(Constraint):
    """Dale's law: each unit either excites or inhibits all others (Song et al. 2016, doi:10.1371/journal.pcbi.1004792).

    All weights in a column, which belong to one sending unit, have the same sign. The initial weights keep their
    magnitudes.

    Args:
        excitatory: the fraction of sending units that excite others (the first columns), or a mask of these units,
            (columns,).

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
        """Store the sign of each column."""
        columns = weight.shape[1]
        if isinstance(self.excitatory, float | int):
            mask = torch.arange(columns) < round(self.excitatory * columns)
        else:
            mask = torch.as_tensor(self.excitatory, dtype=torch.bool)
        if mask.shape != (columns,):
            raise ValueError(f"Dale: the mask must be ({columns},), one per sending unit, got {tuple(mask.shape)}")
        self.register_buffer("signs", torch.where(mask, 1.0, -1.0).to(weight))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the constrained matrix, (rows, columns)."""
        return weight.abs() * self.signs


class Sparse(Constraint):
    """Only some connections exist; all other weights are exactly 0.

    Args:
        connections: the probability that a connection exists (in all gates or in none), or a mask of the connections,
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
        """Store the mask of the whole matrix."""
        units, columns = weight.shape[0] // blocks, weight.shape[1]
        if isinstance(self.connections, Tensor):
            mask = self.connections.to(torch.bool)
        else:
            generator = torch.Generator().manual_seed(self.seed)
            mask = torch.rand(units, columns, generator=generator) < self.connections
        if mask.shape == (units, columns):
            mask = mask.repeat(blocks, 1)
        if mask.shape != weight.shape:
            raise ValueError(
                f"Sparse: the mask must be (units, columns) = {(units, columns)} or {tuple(weight.shape)}, "
                f"got {tuple(mask.shape)}"
            )
        self.register_buffer("mask", mask.to(weight))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the constrained matrix, (rows, columns)."""
        return weight * self.mask


class Areas(Sparse):
    """Units belong to areas, and only some areas send to others (Yang et al. 2019, doi:10.1038/s41593-018-0310-2).

    Args:
        sizes: the number of units in each area; areas are consecutive.
        connections: a mask (areas, areas), true where the area of the column sends to the area of the row.

    Raises:
        ValueError: `connections` does not have the shape (areas, areas).
    """

    def __init__(self, sizes: Sequence[int], connections: Sequence[Sequence[bool]] | Tensor) -> None:
        area_mask = torch.as_tensor(connections, dtype=torch.bool)
        if area_mask.shape != (len(sizes), len(sizes)):
            raise ValueError(
                f"Areas: connections must be ({len(sizes)}, {len(sizes)}), one row and column for each area, "
                f"got {tuple(area_mask.shape)}"
            )
        counts = torch.tensor(list(sizes))
        super().__init__(area_mask.repeat_interleave(counts, 0).repeat_interleave(counts, 1))


class LowRank(Constraint):
    """Each gate's matrix is the product of two learned factors of low rank (Mastrogiuseppe and Ostojic 2018).

    Training starts from the best approximation of the initial weights with this rank.

    Args:
        rank: the rank of each gate's matrix.
    """

    elementwise = False

    def __init__(self, rank: int) -> None:
        super().__init__()
        if not isinstance(rank, int) or rank < 1:
            raise ValueError(f"LowRank: rank must be a whole number of at least 1, got {rank!r}")
        self.rank, self.blocks = rank, 1

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Store the number of gates."""
        self.blocks = blocks
        if self.rank > min(weight.shape[0] // blocks, weight.shape[1]):
            size = (weight.shape[0] // blocks, weight.shape[1])
            raise ValueError(f"LowRank: rank must be at most {min(size)} for matrices {size}, got {self.rank}")

    def forward(self, left: Tensor, right: Tensor) -> Tensor:  # type: ignore[override]
        """Return the constrained matrix, (rows, columns), from factors (gates, units, rank), (gates, rank, columns)."""
        return (left @ right).flatten(0, 1)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return the initial factors."""
        u, singular, v = torch.linalg.svd(weight.unflatten(0, (self.blocks, -1)), full_matrices=False)
        root = singular[:, : self.rank].sqrt()
        return u[:, :, : self.rank] * root.unsqueeze(1), root.unsqueeze(2) * v[:, : self.rank]


class Orthogonal(Constraint):
    """Each gate's matrix is orthogonal, by the Cayley transform (Helfrich et al. 2018, arXiv:1707.09520).

    Training starts from the orthogonal matrix that is nearest to the initial weights.
    """

    elementwise = False
    base: Tensor

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Store the nearest orthogonal matrices, (gates, units, units)."""
        matrices = weight.detach().unflatten(0, (blocks, -1))
        if matrices.shape[1] != matrices.shape[2]:
            raise ValueError(f"Orthogonal: each gate's matrix must be square, got {tuple(matrices.shape[1:])}")
        u, _, v = torch.linalg.svd(matrices)
        self.register_buffer("base", u @ v)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the constrained matrix, (rows, columns)."""
        skew = weight.unflatten(0, (len(self.base), -1))
        skew = skew - skew.mT
        identity = torch.eye(skew.shape[1], dtype=weight.dtype, device=weight.device)
        return (self.base @ torch.linalg.solve(identity + skew, identity - skew)).flatten(0, 1)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return zeros, for which `forward` returns the nearest orthogonal matrix."""
        return torch.zeros_like(weight)


class SpectralRadius(Constraint):
    """Limits the spectral radius of each gate's matrix, which is the largest magnitude of its eigenvalues.

    A matrix with a larger spectral radius is scaled down.

    Args:
        limit: the largest spectral radius, above 0.
    """

    def __init__(self, limit: float = 1.0) -> None:
        super().__init__()
        if not limit > 0:
            raise ValueError(f"SpectralRadius: limit must be above 0, got {limit!r}")
        self.limit, self.blocks = limit, 1

    def prepare(self, weight: Tensor, blocks: int) -> None:
        """Store the number of gates."""
        self.blocks = blocks
        if weight.shape[0] // blocks != weight.shape[1]:
            size = (weight.shape[0] // blocks, weight.shape[1])
            raise ValueError(f"SpectralRadius: each gate's matrix must be square, got {size}")

    def forward(self, weight: Tensor) -> Tensor:
        """Return the constrained matrix, (rows, columns)."""
        matrices = weight.unflatten(0, (self.blocks, -1))
        with torch.no_grad():
            radius = torch.linalg.eigvals(matrices).abs().amax(1)
            factor = (self.limit / radius.clamp_min(torch.finfo(weight.dtype).tiny)).clamp_max(1)
        return (matrices * factor[:, None, None]).flatten(0, 1)


def constrain(layer: Recurrent, *constraints: Constraint, weight: str = "weight_hh") -> Recurrent:
    """Constrain weight matrices of a layer, in place.

    Create the optimiser afterwards, because the unconstrained parameters are new. In the `state_dict` they have names
    such as `parametrizations.weight_hh_l0.original`.

    Constraints are applied in the given order. `Orthogonal` must be the only one. `LowRank` must be the first, and only
    `SpectralRadius` may follow it. `SpectralRadius` must be the last.

    Args:
        layer: the layer.
        constraints: objects of `gg.constraints`.
        weight: "weight_hh", "weight_ih" or "weight_hr" for all layers and directions, or the name of one matrix such
            as "weight_hh_l1_reverse".

    Returns:
        The layer.

    Raises:
        TypeError: `layer` is not a layer of this package, or a constraint is not an object of `gg.constraints`.
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
    names = [full_name for part in parts for name, full_name in part.names.items() if weight in (name, full_name)]
    if not names or not weight.startswith("weight_"):
        matrices = [name for part in parts for name in part.names.values() if name.startswith("weight_")]
        raise KeyError(f"constrain: the layer has no {weight!r}; it has {', '.join(matrices)}")
    _check_order(constraints)
    for name in names:
        if parametrize.is_parametrized(layer, name):
            raise ValueError(
                f"constrain: {name} is already constrained; pass all its constraints in one call, or remove them by "
                "torch.nn.utils.parametrize.remove_parametrizations"
            )
        blocks = len(layer.cell.gates) if not name.startswith("weight_hr") else 1
        for constraint in constraints:
            constraint = deepcopy(constraint)  # each matrix has its own buffers
            constraint.prepare(getattr(layer, name).detach(), blocks)
            parametrize.register_parametrization(layer, name, constraint)
    return layer


def _check_order(constraints: Sequence[Constraint]) -> None:
    """Raise unless every constraint still holds after the ones that follow it."""
    if not constraints:
        raise ValueError("constrain: pass at least one constraint of gg.constraints")
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise TypeError(f"constrain: constraints must be objects of gg.constraints, got {constraint!r}")
    for k, constraint in enumerate(constraints):
        later = constraints[k + 1 :]
        breaking = [
            other for other in later if not (isinstance(other, SpectralRadius) and isinstance(constraint, LowRank))
        ]
        if not constraint.elementwise and (breaking or k > 0):
            rule = f"{type(constraint).__name__} must be the first constraint"
            if not isinstance(constraint, LowRank):
                rule += " and the only one"
            elif k == 0:
                rule = "only SpectralRadius may follow LowRank"
            raise ValueError(
                f"constrain: {rule}, because others break it; got {', '.join(type(c).__name__ for c in constraints)}"
            )
        if isinstance(constraint, SpectralRadius) and later:
            raise ValueError(
                "constrain: SpectralRadius must be the last constraint, because others change the eigenvalues; got "
                f"{', '.join(type(c).__name__ for c in constraints)}"
            )
