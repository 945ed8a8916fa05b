"""`python docs/picture.py RUN > docs/picture.svg` draws a picture of a trained tagger of Python code."""

import sys
from html import escape

import torch
from torch import Tensor

from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.toy.python_code import standard_library
from glassgate.tasks.tagging import Tagging

COLOURS = {
    "keyword": "#a0187c",
    "builtin": "#0b6e99",
    "number": "#0550ae",
    "string": "#116329",
    "docstring": "#5a7d1e",
    "comment": "#7a7f87",
    "operator": "#953800",
    "decorator": "#8250df",
}
INK, PAPER, FRAME, MISTAKE, HIGH, LOW = "#1f2328", "#ffffff", "#d0d7de", "#d1242f", "#f2994a", "#5b8def"
LINES, COLUMNS, FAINT = 11, 76, 0.04
WIDTH, HEIGHT, MARGIN = 8.2, 19, 18


def main(run: str) -> None:
    """Print the picture: predicted labels of some held-out lines, and the states of two units that follow strings."""
    tagging = Tagging.load(run)
    example, first = choose_excerpt(standard_library()[1])
    predicted = tagging.predict([example])[0]
    units = torch.as_tensor(tagging.encode(example)["units"])[None]
    with torch.inference_mode():
        states = tagging.network.encoder(tagging.network.embedding(units), return_states=True)[2]
    text, labels = "".join(example.tokens), example.labels or []
    is_string = torch.tensor([label in ("string", "docstring") for label in labels], dtype=torch.float)
    start = sum(map(len, text.splitlines(keepends=True)[:first]))
    stop = start + sum(map(len, text.splitlines(keepends=True)[first : first + LINES]))
    code = text[start:stop]
    wrong = sum(a != b for a, b in zip(predicted[start:stop], labels[start:stop], strict=True))
    panels = [
        (
            f"{example.source}, lines {first + 1} to {first + LINES}, held out: the predicted label of each "
            f"character ({wrong} of {len(code)} wrong)",
            colour_by_label(code, predicted[start:stop], labels[start:stop]),
        )
    ]
    for name, description in (("forward", "reads from the left"), ("reverse", "reads from the right")):
        unit, correlation, values = most_correlated_unit(states[f"layer0.{name}.c"][0], is_string)
        title = (
            f"Unit {unit} of the direction that {description}: state c follows strings (correlation {correlation:.2f})"
        )
        panels.append((title, shade_by_value(code, values[start:stop])))
    print(draw(panels))


def choose_excerpt(held_out: list[Tagged]) -> tuple[Tagged, int]:
    """Return the file and the first line of the excerpt whose labels have the largest entropy."""
    best, kinds = (-1.0, held_out[0], 0), list(COLOURS)
    for example in held_out:
        lines, start = "".join(example.tokens).splitlines(keepends=True), 0
        for first in range(len(lines) - LINES):
            code = "".join(lines[first : first + LINES])
            fits = max(map(len, lines[first : first + LINES])) <= COLUMNS and code.isascii() and "\n\n\n" not in code
            if fits and lines[first].strip() and lines[first + LINES - 1].strip():
                labels = (example.labels or [])[start : start + len(code)]
                numbers = torch.tensor([kinds.index(label) for label in labels if label in kinds])
                fractions = numbers.bincount(minlength=len(kinds)) / len(code)
                entropy = float(-(fractions * (fractions + 1e-9).log()).sum())
                best = max(best, (entropy, example, first), key=lambda excerpt: excerpt[0])
            start += len(lines[first])
    return best[1:]


def most_correlated_unit(states: Tensor, is_string: Tensor) -> tuple[int, float, Tensor]:
    """Return the unit whose state (L, H) correlates most with `is_string` (L,), the correlation, and scaled values.

    The sign of the values is changed if the correlation is negative.
    """
    correlation = torch.corrcoef(torch.cat([states, is_string[:, None]], 1).T)[-1, :-1].nan_to_num()
    unit = int(correlation.abs().argmax())
    values = states[:, unit] * correlation[unit].sign()
    return unit, float(correlation[unit].abs()), values / values.abs().quantile(0.98).clamp(min=1e-9)


def colour_by_label(code: str, predicted: list[str], labels: list[str]) -> list[str]:
    """Return each character as SVG in the colour of its predicted label. Mistakes are underlined."""
    parts = []
    for (x, y, character), label, truth in zip(positions(code), predicted, labels, strict=True):
        if label != truth:
            parts.append(f'<rect x="{x:.1f}" y="{y + 4}" width="{WIDTH}" height="2" fill="{MISTAKE}"/>')
        parts.append(letter(x, y, character, COLOURS.get(label, INK)))
    return parts


def shade_by_value(code: str, values: Tensor) -> list[str]:
    """Return each character as SVG on a background whose opacity is the magnitude of the value."""
    parts = []
    for (x, y, character), value in zip(positions(code), values.clamp(-1, 1).tolist(), strict=True):
        ground = HIGH if value > 0 else LOW
        box = f'x="{x:.1f}" y="{y - HEIGHT + 5}" width="{WIDTH + 0.3:.1f}" height="{HEIGHT}"'
        if abs(value) > FAINT:
            parts.append(f'<rect {box} fill="{ground}" fill-opacity="{abs(value):.2f}"/>')
        parts.append(letter(x, y, character, INK))
    return parts


def positions(code: str) -> list[tuple[float, int, str]]:
    """Return the position of each character relative to the upper left corner of the panel."""
    result, row, column = [], 0, 0
    for character in code:
        result.append((MARGIN + column * WIDTH, (row + 1) * HEIGHT, character))
        row, column = (row + 1, 0) if character == "\n" else (row, column + 1)
    return result


def letter(x: float, y: int, character: str, colour: str) -> str:
    """Return a character as SVG; empty for white space."""
    return f'<text x="{x:.1f}" y="{y}" fill="{colour}">{escape(character)}</text>' if character.strip() else ""


def draw(panels: list[tuple[str, list[str]]]) -> str:
    """Return the panels as SVG, one below the other, each with its title."""
    width, panel_height = int(2 * MARGIN + COLUMNS * WIDTH), (LINES + 2) * HEIGHT + 12
    body = []
    for k, (title, parts) in enumerate(panels):
        body.append(f'<g transform="translate(0 {MARGIN + k * panel_height})">')
        body.append(f'<text x="{MARGIN}" y="4" class="title">{escape(title)}</text>')
        body += [f'<g transform="translate(0 8)">{"".join(parts)}</g>', "</g>"]
    height = MARGIN + len(panels) * panel_height
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
            "<style>text { font: 13.5px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; } "
            ".title { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: #57606a; }</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}" stroke="{FRAME}"/>',
            *body,
            "</svg>",
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1])
