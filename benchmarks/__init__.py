"""The page on speed and its measurements. `python -m benchmarks` runs `experiments.speed`."""
