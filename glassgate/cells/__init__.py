"""The built-in cells, one family per file. The docstring of each cell lists its paper and its equations."""

from typing import Any

from glassgate.cells.ctrnn import CTRNN
from glassgate.cells.gru import GRU, GRUP, MGU, ActivatedGRU, GRUv3
from glassgate.cells.janet import JANET
from glassgate.cells.layer_norm import LayerNormGRU, LayerNormLSTM
from glassgate.cells.lstm import CIFG, LSTM, ActivatedLSTM, ClippedLSTM, PeepholeLSTM
from glassgate.cells.minimal import MinGRU, MinLSTM
from glassgate.cells.rnn import RNN, IndRNN
from glassgate.cells.slstm import SLSTM
from glassgate.user_warning import warn_user

__all__ = [
    "CIFG",
    "CTRNN",
    "GRU",
    "GRUP",
    "JANET",
    "LSTM",
    "MGU",
    "RNN",
    "SLSTM",
    "ActivatedGRU",
    "ActivatedLSTM",
    "ClippedLSTM",
    "GRUv3",
    "IndRNN",
    "LayerNormGRU",
    "LayerNormLSTM",
    "MinGRU",
    "MinLSTM",
    "PeepholeLSTM",
]


def __getattr__(name: str) -> Any:
    if name == "GRUv1":
        warn_user(
            "gg.cells.GRUv1 has a new name, GRUv3: its reset gate acts before the matrix product, as in version 3 of "
            "arXiv:1406.1078. Version 1 is gg.cells.GRU, the cell of torch.nn.GRU. Use gg.cells.GRUv3",
            FutureWarning,
        )
        return GRUv3
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
