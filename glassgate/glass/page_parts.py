"""The common parts of all pages: style, Content-Security-Policy, files of the package, embedded JSON."""

import base64
import hashlib
import json
import math
import re
from importlib.resources import files
from typing import Any

from glassgate.glass.diagrams.svg import STYLE

_DIAGRAM_STYLE = "\n".join(line for line in STYLE.splitlines() if re.match(r"\.gg-diagram [^{]", line))


def page_style(*more: str) -> str:
    """The style sheet of a page. The rules of diagrams come first, so that the colours of the page override theirs."""
    return "\n".join(filter(None, (_DIAGRAM_STYLE, resource("page.css"), *more)))


def page_policy(style: str, *scripts: str) -> str:
    """The Content-Security-Policy of a page. It forbids requests, other styles and other scripts."""
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {hashes}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def resource(name: str, package: str = "glassgate.glass") -> str:
    """The text of a file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8").strip()


def as_json(content: Any) -> str:
    """Convert to JSON that is safe inside HTML. NaN and infinite numbers become null."""
    text = json.dumps(_without_nan(content), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _without_nan(each) for name, each in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_nan(each) for each in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
