"""Training: the loop, its schedule, checkpoints and logs."""
