"""Runs the command `glassgate` for `python -m glassgate`."""

import sys

from glassgate.cli import main

if __name__ == "__main__":
    sys.exit(main())
