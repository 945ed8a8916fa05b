"""The loop over time: the rows of a batch, the buffers, the stages of a step, and the GEMMs outside the loop."""
