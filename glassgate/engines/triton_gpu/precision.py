"""The types of numbers in a call: matrix products have the type of the results, everything else is float32."""

from typing import NamedTuple

import torch


class Precision(NamedTuple):
    """How matrix products are computed. Sums, states and the pointwise part are float32.

    Attributes:
        dtype: the type of the operands of products.
        of_float32: how operands of float32 are multiplied, "ieee" or "tf32".
    """

    dtype: torch.dtype
    of_float32: str

    @classmethod
    def of(cls, dtype: torch.dtype) -> "Precision":
        """The precision for results of a type. `torch.backends.cudnn.rnn.fp32_precision` determines TF32.

        Args:
            dtype: the type of the results.
        """
        if dtype != torch.float32:
            return cls(dtype, "ieee")
        own = torch._C._get_fp32_precision_getter("cuda", "rnn")
        return cls(dtype, "tf32" if own == "tf32" else "ieee")


def saved_type(buffer: str, dtype: torch.dtype) -> torch.dtype:
    """The type of a buffer of `Plan.kept_widths`: that of products, or float32 for row sums."""
    return torch.float32 if buffer == "row" else dtype
