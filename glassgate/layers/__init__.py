"""Recurrent layers: stacks of layers and directions, single cells, regularisers, edits, streams."""
