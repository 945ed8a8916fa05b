"""Optional packages. If one of them is not installed, the error names the extra that installs it."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import FrameType, ModuleType

EXTRAS = {
    **dict.fromkeys(("torchmetrics", "rich", "yaml", "tensorboard"), "tasks"),
    **dict.fromkeys(("pyarrow", "pandas", "sklearn", "scipy"), "tasks"),
    **dict.fromkeys(("onnx", "onnxscript", "onnxruntime", "onnx_ir"), "export"),
    **dict.fromkeys(("tokenizers", "sacrebleu"), "translation"),
    "matplotlib": "pictures",
    "openpyxl": "excel",
    "triton": "gpu",
}
"""The extra that installs a package, by the name with which the package is imported."""


def install_command(package: str) -> str:
    """The command that installs an optional package."""
    return f"pip install 'glassgate[{EXTRAS[package]}]'"


class MissingPackageError(ModuleNotFoundError):
    """An optional package is not installed. The message has the command that installs it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the package {name} is not installed; install it with: {install_command(name)}", name=name)


class MissingPackageFinder(MetaPathFinder):
    """The last finder of `sys.meta_path`. It is asked for a package after all other finders have failed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise MissingPackageError if a module of glassgate imports an optional package."""
        if name in EXTRAS and _importer(sys._getframe(1)).partition(".")[0] == "glassgate":
            raise MissingPackageError(name)


def _importer(frame: FrameType | None) -> str:
    """The name of the module that imports; empty if a module only asks with `importlib.util.find_spec`."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == "importlib.util":
            return ""
        if module.partition(".")[0] not in ("importlib", "_frozen_importlib", "_frozen_importlib_external"):
            return module
        frame = frame.f_back
    return ""
