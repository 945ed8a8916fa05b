"""How steps become a network: stacks of layers, single cells, streams."""
