"""Moves the subtraction of a mean over units from a step into its weights.

The mean over units of W x + b is linear in x. W x + b minus its mean is therefore one matrix product with other
weights. A layer-normalised step then needs no sum over units, and no phase, for this mean.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from glassgate.export.phases import Affine, Constant, Item, Numbers, Pointwise, State, Step, SumOverUnits, ordered

_ROUNDING = 1e-13
"""A sum in double precision counts as zero if it is at most this fraction of the sum of magnitudes."""


def centred(step: Step) -> Step:
    """Move means over units into the weights of a step, unless the weights would become larger."""
    centring = _Centring(step.items)
    new = {name: centring.centred(item) for name, item in step.new.items()}
    items = ordered(new.values())
    if _weights(items) <= _weights(step.items):
        step.items, step.new = items, new
    return step


def _weights(items: Sequence[Item]) -> int:
    return sum(product.matrix.size for item in items if isinstance(item, Affine) for product in item.products)


class _Centring:
    """Rewrites the values of a step with means in the weights.

    A value that is linear in the vectors of the step's products has a form: a matrix in double precision with a row for
    each unit (or a single row), a column for the constant, and a column for each number of each vector.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._columns: dict[Item, slice] = {}
        self._width = 1
        for product in (product for item in items if isinstance(item, Affine) for product in item.products):
            if product.matrix.ndim == 2 and product.left not in self._columns:
                first, self._width = self._width, self._width + product.matrix.shape[1]
                self._columns[product.left] = slice(first, self._width)
        self._forms: dict[Item, Numbers | None] = {}
        self._new: dict[Item, Item | float] = {}

    def centred(self, item: Item) -> Item:
        """The rewritten value."""
        new = self._centred(item)
        assert isinstance(new, Item)  # only single numbers become 0.0
        return new

    def _centred(self, item: Item | float) -> Item | float:
        if not isinstance(item, Item):
            return item
        if item not in self._new:
            self._new[item] = self._rewritten(item)
        return self._new[item]

    def _rewritten(self, item: Item) -> Item | float:
        form = self._form(item) if isinstance(item, Pointwise | SumOverUnits) else None
        if form is not None and item.is_per_row and not form.any():
            return 0.0
        match item:
            case SumOverUnits(x=x):
                x = self.centred(x)
                return replace(item, x=x, level=x.level + 1)
            case Affine(products=products):
                products = [replace(product, left=self.centred(product.left)) for product in products]
                lefts = [product.left for product in products]
                level = max(0 if isinstance(left, State) else left.level + 1 for left in lefts)
                return replace(item, level=level, products=products)
            case Pointwise(op="sub", args=(Affine() as product, Pointwise(is_per_row=True) | SumOverUnits())) if (
                form is not None
            ):
                return self._product(product, form)
            case Pointwise(op=op, args=args):
                new = tuple(self._centred(arg) for arg in args)
                match op, new:
                    case ("add" | "sub", (kept, 0.0)) | ("add", (0.0, kept)):
                        return kept
                    case "mul", (0.0, _) | (_, 0.0):
                        return 0.0
                level = max((arg.level for arg in new if isinstance(arg, Item)), default=0)
                return replace(item, args=new, level=level)
        return item

    def _product(self, product: Affine, form: Numbers) -> Affine:
        """The matrix product whose weights and bias are a form."""
        kind = product.products[0].matrix.dtype
        parts = [replace(part, matrix=form[:, self._columns[part.left]].astype(kind)) for part in product.products]
        bias = form[:, 0].astype(kind) if form[:, 0].any() else None
        return replace(product, bias=bias, products=parts, is_centred=True)

    def _form(self, item: Item | float) -> Numbers | None:
        """The form of a value; None if it is not linear."""
        if not isinstance(item, Item):
            return self._constant(np.array([item]))
        if item not in self._forms:
            self._forms[item] = self._computed_form(item)
        return self._forms[item]

    def _constant(self, numbers: Numbers) -> Numbers:
        form = np.zeros((len(numbers), self._width))
        form[:, 0] = numbers
        return form

    def _computed_form(self, item: Item) -> Numbers | None:
        match item:
            case Constant(values=values):
                return self._constant(values)
            case Affine(products=products) if all(product.matrix.ndim == 2 for product in products):
                units = len(products[0].matrix)
                form = self._constant(np.zeros(units) if item.bias is None else item.bias)
                for product in products:
                    form[:, self._columns[product.left]] += product.matrix
                return form
            case SumOverUnits(x=x) if (terms := self._form(x)) is not None:
                total = terms.sum(0, keepdims=True)
                return np.where(np.abs(total) <= _ROUNDING * np.abs(terms).sum(0), 0.0, total)
            case Pointwise(op="add" | "sub" as op, args=(a, b)):
                left, right = self._form(a), self._form(b)
                if left is not None and right is not None:
                    return left + right if op == "add" else left - right
            case Pointwise(op="mul" | "div" as op, args=(Item() as a, float() | Constant(is_per_row=True) as number)):
                factor = number.values.item() if isinstance(number, Constant) else number
                if (scaled := self._form(a)) is not None:
                    return scaled * factor if op == "mul" else scaled / factor
        return None
