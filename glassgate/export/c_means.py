"""Moves the subtraction of a mean over units from a step into its weights.

The mean over units of W x + b is affine in x. W x + b minus its mean is therefore one matrix product with other weights
and another bias. The step of a layer-normalised cell then needs neither a sum over units nor a phase for this mean.
"""

import numpy as np

from glassgate.engines.lowering.ir import Elementwise, Value
from glassgate.export.weighted_graph import Affine, Product, WeightedGraph

_ROUNDING = 1e-13
"""A sum in double precision counts as zero if it is at most this fraction of the sum of magnitudes."""


def move_means_into_weights(graph: WeightedGraph) -> WeightedGraph:
    """Move means over units into the weights of a step, unless the step would then have more weights."""
    centred = _Centring(graph).centred()
    return centred if centred.weight_count <= graph.weight_count else graph


class _Centring:
    """Finds the values of a step that are affine functions of the vectors in its matrix products.

    The coefficients of such a value are a matrix in double precision, with one row per unit, or a single row for a
    number per row of the batch. The first column is the constant part. The others belong to elements of the vectors.
    """

    def __init__(self, graph: WeightedGraph) -> None:
        self.graph, self.values = graph, graph.values
        self._products: dict[Value, Product] = {}
        """A product with each vector."""
        self._columns: dict[Value, slice] = {}
        self._width = 1
        for product in (p for value in self.values if value in graph.affine for p in graph.affine[value].products):
            vector = graph.origin(product.vector)
            if product.matrix.ndim == 2 and vector not in self._products:
                first, self._width = self._width, self._width + product.matrix.shape[1]
                self._products[vector], self._columns[vector] = product, slice(first, self._width)
        self._coefficients: dict[Value, np.ndarray] = {}

    def centred(self) -> WeightedGraph:
        """The graph with means in the weights."""
        affine, aliases, zeros = dict[Value, Affine](), dict[Value, Value](), dict[Value, np.ndarray]()
        for value in self.values:
            operation, coefficients = self.graph.operations.get(value), self._find_coefficients(value)
            if coefficients is not None:
                self._coefficients[value] = coefficients
                if self.graph.is_single(value) and self.graph.is_computed(value) and not coefficients.any():
                    zeros[value] = np.zeros(())
            if value in zeros or not isinstance(operation, Elementwise) or value in self.graph.constants:
                continue
            args = [self.graph.origin(arg) if isinstance(arg, Value) else arg for arg in operation.args]
            # A zero that the author wrote is multiplied, because 0 * inf is NaN. A removed mean was exactly zero.
            match operation.op, args, [arg in zeros for arg in args]:
                case ("add" | "sub", [Value() as kept, _], [_, True]) | ("add", [_, Value() as kept], [True, _]):
                    aliases[value] = kept
                case "mul", _, [True, _] | [_, True]:
                    zeros[value] = np.zeros(())
                case "sub", [Value() as minuend, Value() as mean], _:
                    is_centred = minuend in self.graph.affine and self.graph.is_single(mean)
                    if is_centred and coefficients is not None and self.graph.is_computed(mean):
                        affine[value] = self._affine(self.graph.affine[minuend], coefficients)
        return self.graph.replaced(affine, zeros, aliases)

    def _affine(self, minuend: Affine, coefficients: np.ndarray) -> Affine:
        """The matrix products and the bias with these coefficients."""
        dtype = minuend.products[0].matrix.dtype
        products = {self.graph.origin(product.vector): product for product in minuend.products}
        for vector, product in self._products.items():
            if coefficients[:, self._columns[vector]].any():
                products.setdefault(vector, product)
        bias = coefficients[:, 0].astype(dtype) if coefficients[:, 0].any() else None
        matrices = {v: coefficients[:, self._columns[v]].astype(dtype) for v in products}
        return Affine(tuple(p._replace(matrix=matrices[v]) for v, p in products.items()), bias, is_centred=True)

    def _find_coefficients(self, value: Value) -> np.ndarray | None:
        """The coefficients of a value whose operands have theirs; None if it is not an affine function."""
        graph, operation = self.graph, self.graph.operations.get(value)
        if value in graph.constants:
            return self._constant(graph.constants[value].reshape(-1))
        if value in graph.affine:
            products, bias, _ = graph.affine[value]
            if any(product.matrix.ndim != 2 for product in products):
                return None
            coefficients = self._constant(np.zeros(len(products[0].matrix)) if bias is None else bias)
            for product in products:
                coefficients[:, self._columns[graph.origin(product.vector)]] += product.matrix
            return coefficients
        if graph.is_sum(value):
            terms = self._coefficients.get(graph.operands(value)[0])
            if terms is None:
                return None
            total = terms.sum(0, keepdims=True)
            return np.where(np.abs(total) <= _ROUNDING * np.abs(terms).sum(0), 0.0, total)
        if not isinstance(operation, Elementwise) or operation.op not in ("add", "sub", "mul", "div"):
            return None
        args = [graph.origin(arg) if isinstance(arg, Value) else arg for arg in operation.args]
        left, right = (
            self._coefficients.get(arg) if isinstance(arg, Value) else self._constant(np.array([arg])) for arg in args
        )
        match operation.op, args[1]:
            case "add" | "sub", _ if left is not None and right is not None:
                return left + right if operation.op == "add" else left - right
            case "mul" | "div", factor if left is not None and isinstance(args[0], Value):
                number = graph.number(factor) if isinstance(factor, Value) else factor
                if number is not None:
                    return left * number if operation.op == "mul" else left / number
        return None

    def _constant(self, numbers: np.ndarray) -> np.ndarray:
        coefficients = np.zeros((len(numbers), self._width))
        coefficients[:, 0] = numbers
        return coefficients
