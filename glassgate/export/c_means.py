"""Moves the subtraction of a mean over units from a step into its weights.

The mean over units of W x + b is affine in x. W x + b minus its mean is therefore one matrix product with other weights
and another bias. The step of a layer-normalised cell then needs neither a sum over units nor a phase for this mean.
"""

import numpy as np

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value, constant
from glassgate.export.weighted_step import Affine, Product, Terms, WeightedStep

_ROUNDING = 1e-13
"""A sum in double precision counts as zero if it is at most this fraction of the sum of magnitudes."""


def move_means_into_weights(step: WeightedStep) -> WeightedStep:
    """Move means over units into the weights of a step, unless the step would then have more weights."""
    centred = _Centring(step).centred()
    return centred if centred.weight_count <= step.weight_count else step


class _Centring:
    """Finds the values of a step that are affine functions of the vectors in its matrix products.

    The coefficients of such a value are a matrix in double precision, with one row per unit, or a single row for a
    number per row of the batch. The first column is the constant part. The others belong to elements of the vectors.
    """

    def __init__(self, step: WeightedStep) -> None:
        self.step = step
        self._products: dict[Value, Product] = {}
        """A product with each vector."""
        self._columns: dict[Value, slice] = {}
        self._width = 1
        for value in (value for value in step.values if value in step.sums):
            for vector, product in zip(value.inputs, step.sums[value].products, strict=True):
                if product.matrix.ndim == 2 and vector not in self._products:
                    first, self._width = self._width, self._width + product.matrix.shape[1]
                    self._products[vector], self._columns[vector] = product, slice(first, self._width)
        self._coefficients: dict[Value, np.ndarray] = {}

    def centred(self) -> WeightedStep:
        """The step with means in the weights."""
        step, kept, zeros = self.step, dict[Value, int](), set[Value]()
        centred: dict[Value, dict[Value, Product]] = {}
        for value in step.values:
            coefficients = self._find_coefficients(value)
            if coefficients is not None:
                self._coefficients[value] = coefficients
                if not value.axes and value.inputs and not coefficients.any():
                    zeros.add(value)
            # A zero that the author wrote is multiplied, because 0 * inf is NaN. A removed mean was exactly zero.
            match value.op, value.args, [arg in zeros for arg in value.args]:
                case _ if value in zeros:
                    pass
                case ("add" | "sub", [Value(), _], [_, True]):
                    kept[value] = 0
                case ("add", [_, Value()], [True, _]):
                    kept[value] = 1
                case "mul", _, [True, _] | [_, True]:
                    zeros.add(value)
                case "sub", [Value() as minuend, Value() as mean], _:
                    if minuend in step.sums and coefficients is not None and not mean.axes and mean.inputs:
                        centred[value] = self._products_of(minuend, coefficients)
        if not (kept or zeros or centred):
            return step
        sums, copies = dict[Value, Terms](), dict[Value, Value]()

        def rule(value: Value, copy: Value) -> Value:
            if value in zeros:
                copy = constant(0.0, value.axes)
            elif value in kept:
                copy = copy.inputs[kept[value]]
            elif value in centred:
                products, numbers = centred[value], self._coefficients[value][:, 0]
                copy = Value(Affine(len(step.sums) + len(sums)), tuple(copies[u] for u in products), value.axes)
                bias = numbers.astype(next(iter(products.values())).matrix.dtype) if numbers.any() else None
                sums[copy] = Terms(tuple(products.values()), bias, is_centred=True)
            copies[value] = copy
            return copy

        return step.rewritten(rule, sums)

    def _products_of(self, minuend: Value, coefficients: np.ndarray) -> dict[Value, Product]:
        """The matrix products with these coefficients, by vector."""
        products = dict(zip(minuend.inputs, self.step.sums[minuend].products, strict=True))
        for vector, product in self._products.items():
            if coefficients[:, self._columns[vector]].any():
                products.setdefault(vector, product)
        dtype = self.step.sums[minuend].products[0].matrix.dtype
        matrices = {vector: coefficients[:, self._columns[vector]].astype(dtype) for vector in products}
        return {vector: product._replace(matrix=matrices[vector]) for vector, product in products.items()}

    def _find_coefficients(self, value: Value) -> np.ndarray | None:
        """The coefficients of a value whose operands have theirs; None if it is not an affine function."""
        step, args = self.step, value.args
        if value in step.sums:
            products, bias, _ = step.sums[value]
            if any(product.matrix.ndim != 2 for product in products):
                return None
            coefficients = self._constant(np.zeros(len(products[0].matrix)) if bias is None else bias)
            for vector, product in zip(value.inputs, products, strict=True):
                coefficients[:, self._columns[vector]] += product.matrix
            return coefficients
        if isinstance(value.op, ops.Sum) and len(value.inputs[0].axes) == 1:
            terms = self._of(value.inputs[0])
            if terms is None:
                return None
            total = terms.sum(0, keepdims=True)
            return np.where(np.abs(total) <= _ROUNDING * np.abs(terms).sum(0), 0.0, total)
        if value.op not in ("add", "sub", "mul", "div") or len(value.axes) > 1:
            return None
        left, right = map(self._of, args)
        match value.op, args:
            case "add" | "sub", _ if left is not None and right is not None:
                return left + right if value.op == "add" else left - right
            case "mul" | "div", [Value(), factor] if left is not None:
                number = step.number(factor) if isinstance(factor, Value) else factor
                if number is not None:
                    return left * number if value.op == "mul" else left / number
        return None

    def _of(self, arg: Value | float) -> np.ndarray | None:
        """The coefficients of an argument."""
        if not isinstance(arg, Value):
            return self._constant(np.array([arg]))
        number, units = self.step.number(arg), self.step.count(arg.axes)
        if number is not None:
            return self._constant(np.full(units, number))
        if arg in self.step.constants and len(arg.axes) <= 1:
            return self._constant(self.step.constants[arg].reshape(-1))
        return self._coefficients.get(arg)

    def _constant(self, numbers: np.ndarray) -> np.ndarray:
        coefficients = np.zeros((len(numbers), self._width))
        coefficients[:, 0] = numbers
        return coefficients
