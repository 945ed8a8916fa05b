"""Matrix products in torch: one large product, or the products of a layer outside of its recurrence."""

import torch

from experiments.speed.workload import SQUARE, Workload, draw


class LargeProduct:
    """One large product. Its time is multiplied by `Workload.scale`, to match the operations of a training step."""

    def __init__(self) -> None:
        self.a, self.b = (torch.from_numpy(draw(name, SQUARE, SQUARE)) for name in "ab")
        self.out = torch.empty(SQUARE, SQUARE)

    def run(self) -> torch.Tensor:
        """Compute 2 * SQUARE^3 operations."""
        return torch.mm(self.a, self.b, out=self.out)

    def results(self) -> dict[str, torch.Tensor]:
        """Return no results, so nothing is checked."""
        return {}


class ProductsOutsideRecurrence:
    """The product of a layer's input and weights, and the products for the gradients of both."""

    def __init__(self, workload: Workload, gates: int) -> None:
        rows = workload.L * workload.N
        self.input = torch.from_numpy(draw("input", rows, workload.inputs))
        self.weight, self.bias = torch.randn(gates * workload.H, workload.inputs), torch.randn(gates * workload.H)

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute three products with the same number of operations."""
        gates = torch.addmm(self.bias, self.input, self.weight.t())
        return gates @ self.weight, gates.t() @ self.input

    def results(self) -> dict[str, torch.Tensor]:
        """Return no results, so nothing is checked."""
        return {}


def prepare(workload: Workload) -> LargeProduct | ProductsOutsideRecurrence:
    """Return the large product if `do` is "square", otherwise the products outside of the recurrence."""
    if workload.do == "square":
        return LargeProduct()
    from experiments.speed.cells import cell

    return ProductsOutsideRecurrence(workload, len(cell(workload.cell, workload.H).gates))
