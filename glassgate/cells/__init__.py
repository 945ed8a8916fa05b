"""The cells that ship: equations and their sources, one family a file; nothing else lives here."""

from glassgate.cells.gru import GRU, GRUP, GRUv1
from glassgate.cells.lstm import LSTM
from glassgate.cells.rnn import RNN

__all__ = ["GRU", "GRUP", "LSTM", "RNN", "GRUv1"]
