"""Training: loop, schedule, checkpoints and logs."""
