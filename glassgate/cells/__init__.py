"""The built-in cells, one family per file. The docstring of each cell lists its paper and its equations.

`__all__` contains the common cells with one number per unit, which have every engine and export, `CLASSIC` cells of
many other papers, `STATE_SPACES` those with a linear memory, and `MATRIX_MEMORIES` those with a matrix per head.
"""

from typing import Any

from glassgate.cells.classic import (
    ATR,
    BRC,
    CFN,
    LSTM1997,
    MUT1,
    MUT2,
    MUT3,
    NAS,
    NBRC,
    QRNN,
    RAN,
    SGRN,
    SRU,
    STAR,
    UGRNN,
    LightRU,
    LiGRU,
    MinimalRNN,
)
from glassgate.cells.ctrnn import CTRNN
from glassgate.cells.gru import GRU, GRUP, MGU, ActivatedGRU, GRUv3
from glassgate.cells.janet import JANET
from glassgate.cells.layer_norm import LayerNormGRU, LayerNormLSTM
from glassgate.cells.lstm import CIFG, LSTM, ActivatedLSTM, ClippedLSTM, PeepholeLSTM
from glassgate.cells.lstm_variants import HyperLSTM, MultiplicativeLSTM, PhasedLSTM, ResidualLSTM
from glassgate.cells.matrix import (
    GLA,
    HGRN2,
    MLSTM,
    RWKV7,
    DeltaNet,
    GatedDeltaNet,
    LinearAttention,
    Mamba2,
    RetNet,
)
from glassgate.cells.minimal import MinGRU, MinLSTM
from glassgate.cells.rnn import RNN, IndRNN
from glassgate.cells.slstm import SLSTM
from glassgate.cells.state_spaces import LMU, LRU, RGLRU, S4D, S5
from glassgate.cells.structured import (
    GRUD,
    LEM,
    LTC,
    RHN,
    SCRN,
    TLSTM,
    AntisymmetricRNN,
    CfC,
    CoRNN,
    FastGRNN,
    FastRNN,
    GatedAntisymmetricRNN,
    UnICORNN,
)
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

CLASSIC = {
    each.__name__: each for each in (
        AntisymmetricRNN, ATR, BRC, CfC, CFN, CoRNN, FastGRNN, FastRNN, GatedAntisymmetricRNN, GRUD, HyperLSTM, LEM,
        LightRU, LiGRU, LSTM1997, LTC, MinimalRNN, MultiplicativeLSTM, MUT1, MUT2, MUT3, NAS, NBRC, PhasedLSTM, QRNN,
        RAN, ResidualLSTM, RHN, SCRN, SGRN, SRU, STAR, TLSTM, UGRNN, UnICORNN,
    )
}  # fmt: skip
"""Cells of the literature from 1997 on, by name."""

STATE_SPACES = {each.__name__: each for each in (LMU, LRU, RGLRU, S4D, S5)}
"""The cells with a linear memory, by name."""

MATRIX_MEMORIES = {
    each.__name__: each for each in (DeltaNet, GatedDeltaNet, GLA, HGRN2, LinearAttention, Mamba2, MLSTM, RetNet, RWKV7)
}
"""The cells with a matrix as memory, by name."""


def __getattr__(name: str) -> Any:
    if name == "GRUv1":
        warn_user(
            "gg.cells.GRUv1 has a new name, GRUv3: its reset gate acts before the matrix product, as in version 3 of "
            "arXiv:1406.1078. Version 1 is gg.cells.GRU, the cell of torch.nn.GRU. Use gg.cells.GRUv3",
            FutureWarning,
        )
        return GRUv3
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
