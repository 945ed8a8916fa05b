"""`python -m glassgate` is the command `glassgate`."""

import sys

from glassgate.cli import main

if __name__ == "__main__":
    sys.exit(main())
