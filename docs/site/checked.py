"""Checks the built site: each link has a target page and heading, and no page fetches a file from another host."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class _PageParser(HTMLParser):
    """Collects the anchors of a page, and its links: pairs of an address and whether it is fetched with the page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {name for name in (values.get("id"), values.get("name")) if name}
        address = values.get(_FETCHED.get(tag, "href"))
        if address and tag in ("a", *_FETCHED):
            self.links.append((address, tag in _FETCHED))


def find_faults(site: Path) -> list[str]:
    """Return each broken link of the site, and each file that a page would fetch from another host."""
    parsers = {path: _PageParser() for path in sorted(site.rglob("*.html"))}
    for path, parser in parsers.items():
        parser.feed(path.read_text("utf-8"))
    faults = []
    for path, parser in parsers.items():
        for address, is_fetched in parser.links:
            parts = urlsplit(address)
            target = path.parent / unquote(parts.path) if parts.path else path
            if parts.scheme or parts.netloc or path.name == "404.html":
                fault = "is fetched from another host" if is_fetched and parts.netloc else ""
            elif not target.exists():
                fault = "does not exist"
            else:
                target_page = parsers.get(target.resolve())
                is_lost = target_page and parts.fragment and unquote(parts.fragment) not in target_page.anchors
                fault = "has no such heading on its page" if is_lost else ""
            if fault:
                faults.append(f"{path.relative_to(site)}: {address} {fault}")
    for path in sorted(site.rglob("*.css")):
        faults += [
            f"{path.name}: {url} is fetched"
            for url in re.findall(r"(?:url\(|@import )[\"']?(https?:[^\"')]+)", path.read_text("utf-8"))
        ]
    return faults
