"""Glassgate: recurrent networks for PyTorch that you can see through, at the speed of a black box."""

from glassgate import cells, functional, gates, init
from glassgate.cell import Cell, Parameter
from glassgate.check import check
from glassgate.convert import convert, restore
from glassgate.engines.choose import EngineError, engine
from glassgate.engines.source import source
from glassgate.glass.record import record
from glassgate.layers.cells import GRUCell, LSTMCell, RecurrentCell, RNNCell
from glassgate.layers.drop_in import GRU, LSTM, RNN
from glassgate.layers.stack import Recurrent, explain
from glassgate.shapes import ShapeError

__version__ = "0.1.0"

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Cell",
    "EngineError",
    "GRUCell",
    "LSTMCell",
    "Parameter",
    "RNNCell",
    "Recurrent",
    "RecurrentCell",
    "ShapeError",
    "cells",
    "check",
    "convert",
    "engine",
    "explain",
    "functional",
    "gates",
    "init",
    "record",
    "restore",
    "source",
]
