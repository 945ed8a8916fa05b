"""The report of a run: the answers of its network, and analyses of the inputs and states that they depend on."""
