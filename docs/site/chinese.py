"""Chinese pages of the site: the words of their pictures, by chinese.toml, and lines without spaces between them."""

import html
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

CHINESE = ".zh-CN"
"""The part of a file's name that marks Chinese pages."""

_TABLE = tomllib.loads(Path(__file__).with_name("chinese.toml").read_text("utf-8"))
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_TEXT = re.compile(r"(?<=>)[^<>]+(?=</text>)")
_PICTURE = re.compile(r"(?<=\]\()([^)\s:]+)\.svg(?=\))")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HAN, _MARK = r"[\u4e00-\u9fff]", r"[\u3000-\u303f\uff00-\uffef]"
_BREAK = re.compile(rf"(?<={_MARK})\n(?![\s#>|*-]|\d+\. |```)|(?<={_HAN})\n(?={_HAN}|{_MARK})")


def translate(text: str, picture: str = "") -> str:
    """Return words in Chinese, or unchanged if they are a name.

    Args:
        text: the words, with their numbers.
        picture: the path of the picture below docs/, whose words may have another meaning.

    Example:
        >>> translate("Adding, lag 100"), translate("weight_ih (16, 3)")
        ('加法，间隔 100', 'weight_ih (16, 3)')
    """
    numbers, key = iter(_NUMBER.findall(text)), _key(text)
    translation = _TABLE.get(picture, {}).get(key) or _TABLE["words"].get(key)
    return re.sub("#", lambda _: next(numbers), translation) if translation else text


def translate_picture(svg: str, picture: str = "") -> str:
    """Return a picture with its words in Chinese."""
    return _TEXT.sub(lambda match: translate(match[0], picture), svg)


def untranslated(svg: str) -> Iterator[str]:
    """Yield the words of a picture for which the table has neither a translation nor a name."""
    for text in _TEXT.findall(svg):
        if re.search("[A-Za-z]{2}", html.unescape(text)) and _key(text) not in {*_TABLE["words"], *_TABLE["names"]}:
            yield text


def pictures_of(page: str) -> list[str]:
    """Return the paths of the SVG files that a page shows."""
    return [f"{path}.svg" for path in _PICTURE.findall(page)]


def with_chinese_pictures(page: str) -> str:
    """Return a page that shows the Chinese versions of its SVG files."""
    return _PICTURE.sub(rf"\1{CHINESE}.svg", page)


def joined(page: str) -> str:
    """Return a page without line breaks between Chinese characters, which browsers would show as spaces.

    Example:
        >>> joined("门与状态，\\n按名字\\n读取。")
        '门与状态，按名字读取。'
    """
    parts, end = [], 0
    for match in _FENCED.finditer(page):
        parts += [_BREAK.sub("", page[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, _BREAK.sub("", page[end:])])


def _key(text: str) -> str:
    return _NUMBER.sub("#", text)
