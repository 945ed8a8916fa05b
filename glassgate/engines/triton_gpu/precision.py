"""The dtypes of a call: matrix products use the dtype of the results. Everything else is computed in float32."""

from typing import NamedTuple

import torch

from glassgate.engines.torch_names import float32_precision


class Precision(NamedTuple):
    """The precision of matrix products. Sums, states and pointwise operations are computed in float32.

    Attributes:
        dtype: the dtype of the operands of products.
        float32_precision: the precision of float32 products, "ieee" or "tf32".
    """

    dtype: torch.dtype
    float32_precision: str

    @classmethod
    def of(cls, dtype: torch.dtype) -> "Precision":
        """The precision for results of a dtype. `torch.backends.cudnn.rnn.fp32_precision` selects "ieee" or "tf32"."""
        if dtype != torch.float32:
            return cls(dtype, "ieee")
        setting = float32_precision("cuda", "rnn")
        return cls(dtype, "tf32" if setting == "tf32" else "ieee")


def saved_type(buffer: str, dtype: torch.dtype) -> torch.dtype:
    """The dtype of a buffer of `Plan.kept_widths`: float32 for row sums, otherwise the dtype of the results."""
    return torch.float32 if buffer == "row" else dtype
