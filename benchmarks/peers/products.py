"""Matrix products of torch: one large product, and those of a layer outside of its recurrence."""

import torch

from benchmarks.work import SQUARE, Work, draw


class Square:
    """One large product; `work.scale` is the number of them that the figure compares."""

    def __init__(self) -> None:
        self.a, self.b = (torch.from_numpy(draw(name, SQUARE, SQUARE)) for name in "ab")
        self.out = torch.empty(SQUARE, SQUARE)

    def run(self) -> torch.Tensor:
        """2 * SQUARE^3 operations."""
        return torch.mm(self.a, self.b, out=self.out)

    def results(self) -> dict[str, torch.Tensor]:
        """Nothing to check."""
        return {}


class Around:
    """Products of a training step outside of the recurrence: the input's, and the gradients of input and weights."""

    def __init__(self, work: Work, gates: int) -> None:
        rows = work.L * work.N
        self.input = torch.from_numpy(draw("input", rows, work.inputs))
        self.weight, self.bias = torch.randn(gates * work.H, work.inputs), torch.randn(gates * work.H)

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Three products of the same size."""
        gates = torch.addmm(self.bias, self.input, self.weight.t())
        return gates @ self.weight, gates.t() @ self.input

    def results(self) -> dict[str, torch.Tensor]:
        """Nothing to check."""
        return {}


def prepare(work: Work) -> Square | Around:
    """Return the large product for `do="square"`, otherwise those outside of the recurrence."""
    if work.do == "square":
        return Square()
    from benchmarks.cells import cell

    return Around(work, len(cell(work.cell).gates))
