"""`python -m experiments.speed.fresh_import` prints the seconds that `import glassgate` adds to `import torch`.

The import of torch would also import Glassgate's operators by their entry point, so this is turned off. The other
modules of the benchmarks import Glassgate, so this file does not import them.
"""

import os
import time

if __name__ == "__main__":
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch  # noqa: F401

    start = time.perf_counter()
    import glassgate  # noqa: F401
    from glassgate.engines.torch_op.schema import registered

    registered()
    print(time.perf_counter() - start)
