"""Code that the experiments share: benchmarks, results and defaults."""
