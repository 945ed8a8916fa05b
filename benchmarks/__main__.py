"""`python -m benchmarks` is the command of `experiments.speed`."""

from experiments.speed.__main__ import main

if __name__ == "__main__":
    main()
