"""Code of the experiments outside of the package: benchmarks, results and defaults."""
