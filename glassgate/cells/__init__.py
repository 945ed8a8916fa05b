"""The built-in cells, one family per file. The docstring of each cell lists its paper and its equations."""

from glassgate.cells.ctrnn import CTRNN
from glassgate.cells.gru import GRU, GRUP, MGU, ActivatedGRU, GRUv1
from glassgate.cells.janet import JANET
from glassgate.cells.layer_norm import LayerNormGRU, LayerNormLSTM
from glassgate.cells.lstm import CIFG, LSTM, ActivatedLSTM, ClippedLSTM, PeepholeLSTM
from glassgate.cells.minimal import MinGRU, MinLSTM
from glassgate.cells.rnn import RNN, IndRNN
from glassgate.cells.slstm import SLSTM

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
    "GRUv1",
    "IndRNN",
    "LayerNormGRU",
    "LayerNormLSTM",
    "MinGRU",
    "MinLSTM",
    "PeepholeLSTM",
]
