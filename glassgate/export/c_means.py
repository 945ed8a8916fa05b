"""Moves the subtraction of a mean over units from a step into its weights.

The mean over units of W x + b is affine in x. W x + b minus its mean is therefore one matrix product with other weights
and another bias. The step of a layer-normalised cell then needs neither a sum over units nor a phase for this mean.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from glassgate.export.step_values import (
    Affine,
    Constant,
    Pointwise,
    Step,
    StepValue,
    SumOverUnits,
    topologically_sorted,
)

_ROUNDING = 1e-13
"""A sum in double precision counts as zero if it is at most this fraction of the sum of magnitudes."""


def move_means_into_weights(step: Step) -> Step:
    """Move means over units into the weights of a step, unless the step would then have more weights."""
    rewriting = _Rewriting(step.values)
    new_states = {name: rewriting.rewrite(value) for name, value in step.new_states.items()}
    if _weight_count(topologically_sorted(new_states.values())) <= _weight_count(step.values):
        step.set_new_states(new_states)
    return step


def _weight_count(values: Sequence[StepValue]) -> int:
    return sum(product.matrix.size for value in values if isinstance(value, Affine) for product in value.products)


class _Rewriting:
    """Rewrites the values of a step so that means are part of the weights.

    If a value is an affine function of the vectors in the step's matrix products, its coefficients are a matrix in
    double precision. The matrix has one row per unit, or a single row for a scalar. Its first column is the constant
    part. The other columns belong to the elements of the vectors.
    """

    def __init__(self, values: Sequence[StepValue]) -> None:
        self._columns: dict[StepValue, slice] = {}
        self._width = 1
        for product in (product for value in values if isinstance(value, Affine) for product in value.products):
            if product.matrix.ndim == 2 and product.vector not in self._columns:
                first, self._width = self._width, self._width + product.matrix.shape[1]
                self._columns[product.vector] = slice(first, self._width)
        self._coefficients: dict[StepValue, np.ndarray | None] = {}
        self._rewritten: dict[StepValue, StepValue | float] = {}

    def rewrite(self, value: StepValue) -> StepValue:
        """Return the value with its means in the weights. A value that becomes a constant zero stays unchanged."""
        new = self._rewrite_argument(value)
        return new if isinstance(new, StepValue) else value

    def _rewrite_argument(self, arg: StepValue | float) -> StepValue | float:
        if not isinstance(arg, StepValue):
            return arg
        if arg not in self._rewritten:
            self._rewritten[arg] = self._compute_rewritten(arg)
        return self._rewritten[arg]

    def _compute_rewritten(self, value: StepValue) -> StepValue | float:
        coefficients = self._coefficients_of(value) if isinstance(value, Pointwise | SumOverUnits) else None
        if coefficients is not None and value.is_scalar and not coefficients.any():
            return 0.0
        match value:
            case SumOverUnits(x=x):
                return replace(value, x=self.rewrite(x))
            case Affine(products=products):
                products = [replace(product, vector=self.rewrite(product.vector)) for product in products]
                return replace(value, products=products)
            case Pointwise(op="sub", args=(Affine() as affine, Pointwise(is_scalar=True) | SumOverUnits())) if (
                coefficients is not None
            ):
                return self._with_coefficients(affine, coefficients)
            case Pointwise(op=op, args=args):
                new = tuple(self._rewrite_argument(arg) for arg in args)
                # A zero that the author wrote is multiplied, because 0 * inf is NaN. A removed mean was exactly zero.
                removed = [
                    isinstance(arg, StepValue) and not isinstance(x, StepValue)
                    for arg, x in zip(args, new, strict=True)
                ]
                match op, new, removed:
                    case ("add" | "sub", (kept, _), [_, True]) | ("add", (_, kept), [True, _]):
                        return kept
                    case "mul", _, [True, _] | [_, True]:
                        return 0.0
                return replace(value, args=new)
        return value

    def _with_coefficients(self, affine: Affine, coefficients: np.ndarray) -> Affine:
        """Replace the weights and the bias of the matrix products by these coefficients."""
        dtype = affine.products[0].matrix.dtype
        products = [
            replace(product, matrix=coefficients[:, self._columns[product.vector]].astype(dtype))
            for product in affine.products
        ]
        bias = coefficients[:, 0].astype(dtype) if coefficients[:, 0].any() else None
        return replace(affine, bias=bias, products=products, is_centred=True)

    def _coefficients_of(self, arg: StepValue | float) -> np.ndarray | None:
        """The coefficients of a value; None if it is not an affine function of the vectors."""
        if not isinstance(arg, StepValue):
            return self._constant(np.array([arg]))
        if arg not in self._coefficients:
            self._coefficients[arg] = self._compute_coefficients(arg)
        return self._coefficients[arg]

    def _constant(self, numbers: np.ndarray) -> np.ndarray:
        coefficients = np.zeros((len(numbers), self._width))
        coefficients[:, 0] = numbers
        return coefficients

    def _compute_coefficients(self, value: StepValue) -> np.ndarray | None:
        match value:
            case Constant(numbers=numbers):
                return self._constant(numbers)
            case Affine(products=products) if all(product.matrix.ndim == 2 for product in products):
                units = len(products[0].matrix)
                coefficients = self._constant(np.zeros(units) if value.bias is None else value.bias)
                for product in products:
                    coefficients[:, self._columns[product.vector]] += product.matrix
                return coefficients
            case SumOverUnits(x=x) if (terms := self._coefficients_of(x)) is not None:
                total = terms.sum(0, keepdims=True)
                return np.where(np.abs(total) <= _ROUNDING * np.abs(terms).sum(0), 0.0, total)
            case Pointwise(op="add" | "sub" as op, args=(a, b)):
                left, right = self._coefficients_of(a), self._coefficients_of(b)
                if left is not None and right is not None:
                    return left + right if op == "add" else left - right
            case Pointwise(op="mul" | "div" as op, args=(StepValue() as a, float() | Constant(is_scalar=True) as b)):
                factor = b.numbers.item() if isinstance(b, Constant) else b
                if (scaled := self._coefficients_of(a)) is not None:
                    return scaled * factor if op == "mul" else scaled / factor
        return None
