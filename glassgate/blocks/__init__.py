"""Blocks of published models around a recurrent layer: projections, short convolutions, norms and output gates.

The parameters have the names of the public checkpoints, so `block.load_state_dict` reads the part of a checkpoint that
belongs to one block. Input and output are (N, L, D). A block returns its output and its state; with this state, the
next call continues the sequences.
"""

from glassgate.blocks.gated_delta_net import GatedDeltaNetBlock
from glassgate.blocks.mamba2 import Mamba2Block
from glassgate.blocks.rwkv7 import RWKV7Block
from glassgate.blocks.xlstm import MLSTMBlock, SLSTMBlock

__all__ = ["GatedDeltaNetBlock", "MLSTMBlock", "Mamba2Block", "RWKV7Block", "SLSTMBlock"]
