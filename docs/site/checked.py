"""Checks the built site: each link has a target page and heading, and nothing is fetched from another host."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.names |= {each for each in (values.get("id"), values.get("name")) if each}
        address = values.get(_FETCHED.get(tag, "href"))
        if address and tag in ("a", *_FETCHED):
            self.links.append((address, tag in _FETCHED))


def faults(site: Path) -> list[str]:
    """Return every broken link of the site, and every file that a page would fetch from another host."""
    pages = {path: _Reader() for path in sorted(site.rglob("*.html"))}
    for path, reader in pages.items():
        reader.feed(path.read_text("utf-8"))
    found = []
    for path, reader in pages.items():
        for address, fetched in reader.links:
            parts = urlsplit(address)
            target = path.parent / unquote(parts.path) if parts.path else path
            if parts.scheme or parts.netloc or path.name == "404.html":
                wrong = "is fetched from another host" if fetched and parts.netloc else ""
            elif not target.exists():
                wrong = "does not exist"
            else:
                there = pages.get(target.resolve())
                lost = there and parts.fragment and unquote(parts.fragment) not in there.names
                wrong = "names no heading of its page" if lost else ""
            if wrong:
                found.append(f"{path.relative_to(site)}: {address} {wrong}")
    for path in sorted(site.rglob("*.css")):
        found += [
            f"{path.name}: {url} is fetched"
            for url in re.findall(r"(?:url\(|@import )[\"']?(https?:[^\"')]+)", path.read_text("utf-8"))
        ]
    return found
