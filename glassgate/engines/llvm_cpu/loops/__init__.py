"""The schedule of the CPU: phases of a step, passes over rows, temporaries, memory that is reused, weight gradients."""
