"""The section of the text or the series: each step, shaded by a value of a unit, and the answers of the model."""

from html import escape

import numpy as np

from glassgate.glass import figures
from glassgate.glass.elements import Section, colour_scale, figure_element, scrolled_table
from glassgate.glass.followers import best_followers
from glassgate.glass.languages import clauses, say, say_html, sentences
from glassgate.glass.study import Answer, Choice, Passage, Study
from glassgate.glass.svg import number
from glassgate.glass.wording import data_name, fixed, percent, quoted

_SHADES = 10
# The maximum number of rows of wrong answers.
_MAX_MISTAKES = 30


def text_section(study: Study) -> Section:
    """The section of the text or the series."""
    ranked = best_followers(study)
    direction = study.directions[0]
    unit, name, reason = 0, direction.states[-1], ""
    if ranked:
        best = ranked[0]
        direction = next(each for each in study.directions if each.label == best.direction)
        opposite = say("words.opposite") if best.correlation < 0 else ""
        unit, name = best.unit, best.state
        reason = say_html("text.follows", marks=say("text.mark", mark=best.mark, opposite=opposite))
    values = direction.values[name][:, unit]
    scale = float(np.quantile(np.abs(values), 0.98)) or 1.0
    blocks, are_letters = [], _are_letters(study)
    for passage_index, (start, passage) in enumerate(zip(study.starts, study.passages, strict=False)):
        shown = values[start : start + len(passage.steps)] / scale
        blocks.append(_passage(study, passage_index, start, shown, are_letters))
    has_wrong = any(each.is_wrong for passage in study.passages for each in passage.answers)
    has_sets = any(each.agreement is not None for passage in study.passages for each in passage.answers)
    underlined = say("text.wrong_sets_underlined") if has_sets else say("text.wrong_underlined")
    intro = sentences(say("text.intro"), underlined if has_wrong else "")
    shading = say_html("text.value", name=name, unit=unit, direction=direction.label)
    caption = f'<b data-id="shading">{shading}</b>'
    caption += f'<span data-id="why">{reason}</span>'
    colours = colour_scale(number(float(f"{-scale:.2g}")), number(float(f"{scale:.2g}")), "signed", "scale")
    legend = f'<p class="legend"><span>{caption}</span> {colours}</p>'
    rows = "".join(
        f'<tr><td>{escape(each.mark)}</td><td>{escape(each.direction)}</td><td class="num">'
        f'<button data-part="{escape(each.direction)}" data-unit="{each.unit}" data-name="{escape(each.state)}">'
        f'{each.unit}</button></td><td class="num">{fixed(each.correlation)}</td></tr>'
        for each in ranked[:12]
    )
    head = (
        f'<th>{say("text.label")}</th><th>{say("text.direction")}</th><th class="num">{say("text.unit")}</th>'
        f'<th class="num">{say_html("text.correlation", state=name)}</th>'
    )
    summary = f"<summary>{say('text.ranking')}</summary>"
    table = f'<details class="ranking" open>{summary}{scrolled_table(head, rows)}</details>' if rows else ""
    first = study.passages[0]
    numbered = all(step.isdigit() for step in first.steps)
    series = first.series is not None
    title = say("text.series_title") if series else say("text.steps_title") if numbered else say("text.title")
    accuracy = f'<p class="source">{escape(sentence)}</p>' if (sentence := _accuracy_sentence(study)) else ""
    side = f'<div class="aside">{table}{_mistakes(study)}</div>' if table or has_wrong else ""
    body = f'<div class="reading"><div class="passages">{accuracy}{legend}{"".join(blocks)}</div>{side}</div>'
    return Section("text", title, intro, body)


def _are_letters(study: Study) -> tuple[bool, bool]:
    """Whether most steps are single characters, and whether most answers about whole passages are."""
    steps = [len(step) for passage in study.passages for step in passage.steps]
    whole = [
        len(each.best[0][0])
        for passage in study.passages
        for each in passage.answers
        if each.step is None and not _ending(each.best[0][0])
    ]
    return float(np.mean(steps)) < 1.5, bool(whole) and float(np.mean(whole)) < 1.5


def _accuracy_sentence(study: Study) -> str:
    """A sentence that compares the answers on this page with the score of the run."""
    correct = [each.is_correct for passage in study.passages for each in passage.answers if each.is_correct is not None]
    for data in ("dev", "test"):
        score = (study.metrics.get(data) or {}).get("accuracy")
        if score is not None and correct:
            here = float(np.mean(correct))
            return say("text.accuracy", here=percent(here), all=percent(score), data=data_name(data))
    return ""


def _mistakes(study: Study) -> str:
    """A table of wrong answers and the correct ones. Equal adjacent answers share a row."""
    rows: list[tuple[str, str, str]] = []
    last: tuple[int, int, str, str] | None = None
    for passage_index, passage in enumerate(study.passages):
        for answer_index, each in enumerate(passage.answers):
            if not each.is_wrong or each.target is None:
                continue
            here = (passage_index, answer_index, each.best[0][0], each.target[0])
            text = passage.steps[each.step] if each.step is not None and passage.series is None else ""
            if last == (passage_index, answer_index - 1, *here[2:]) and rows:
                rows[-1] = (rows[-1][0] + text, *here[2:])
            else:
                rows.append((text, *here[2:]))
            last = here
    body = "".join(
        f"<tr><td>{escape(text[:24].strip() or '-')}</td><td>{escape(predicted)}</td><td>{escape(right)}</td></tr>"
        for text, predicted, right in rows[:_MAX_MISTAKES]
    )
    left = len(rows) - _MAX_MISTAKES
    more = f'<p class="source">{say("text.more", count=left)}</p>' if left > 0 else ""
    head = "".join(f"<th>{each}</th>" for each in (say("text.step"), say("text.answer"), say("text.correct_answer")))
    summary = f"<summary>{say('text.wrong', count=len(rows))}</summary>"
    return f'<details class="ranking">{summary}{scrolled_table(head, body)}{more}</details>' if rows else ""


def _passage(study: Study, passage_index: int, start: int, values: np.ndarray, are_letters: tuple[bool, bool]) -> str:
    passage, (letters, whole_letters) = study.passages[passage_index], are_letters
    by_step: dict[int, Answer] = {each.step: each for each in passage.answers if each.step is not None}
    whole = [each for each in passage.answers if each.step is None]
    parts = []
    for step, (words, value) in enumerate(zip(passage.steps, values, strict=True)):
        answer = by_step.get(step)
        wrong = " w" if answer is not None and answer.is_wrong else ""
        title = (
            say("text.step_title", step=words.strip() or say("text.blank"), answer=sentence_about(answer))
            if answer
            else words
        )
        shown = "" if passage.series is not None else "↵\n" if words == "\n" else words
        under = "" if letters or answer is None or passage.series is not None else _under(answer)
        parts.append(
            f'<span class="u {shade(value)}{wrong}" data-s="{start + step}" title="{escape(title)}">'
            f"{escape(shown)}{under}</span>"
        )
    drawn = figures.series(study, passage_index, start)
    if drawn is not None:
        ahead = max([0.0, *(each.position - len(passage.steps) for each in passage.forecasts)])
        content = f'{figure_element(drawn)}<div class="strip">{"".join(parts)}{"<i></i>" * round(ahead)}</div>'
    else:
        kind = "letters" if letters else "words"
        content = f'<div class="{kind}" dir="auto">{("" if letters else " ").join(parts)}</div>'
    title = f'<p class="source">{escape(passage.title)}</p>' if passage.title else ""
    return f'<div class="passage">{title}{content}{_answers(passage, passage_index, whole, whole_letters)}</div>'


def _answers(passage: Passage, passage_index: int, whole: list[Answer], letters: bool) -> str:
    """The answers about a whole passage: a sentence for one answer, a text for several, with corrections if needed."""
    if passage.forecasts:
        return ""
    if len(whole) < 2:
        return "".join(f'<p class="answer{_wrong(each)}">{escape(sentence_about(each))}</p>' for each in whole)
    kind, between = ("letters", "") if letters else ("words", " ")
    row = between.join(
        f'<span class="u{_wrong(each)}{_ending(each.best[0][0])}" data-p="{passage_index}" data-a="{answer_index}" '
        f'title="{escape(sentence_about(each))}">{escape(each.best[0].text)}</span>'
        for answer_index, each in enumerate(passage.answers)
        if each.step is None
    )
    html = f'<p class="answer">{say("text.prediction")}</p><div class="{kind}" dir="auto">{row}</div>'
    if any(each.is_wrong for each in whole):
        right = [each.target.text for each in whole if each.target]
        row = between.join(f'<span class="u{_ending(name)}">{escape(name)}</span>' for name in right)
        html += f'<p class="answer">{say("text.correct")}</p><div class="{kind}" dir="auto">{row}</div>'
    return html


def _under(answer: Answer) -> str:
    """The answer beneath a word, with the correct answer if it is wrong."""
    right = f'<small class="right">{escape(answer.target[0])}</small>' if answer.is_wrong and answer.target else ""
    return f"<small>{escape(answer.best[0].text)}</small>{right}"


def _ending(name: str) -> str:
    """The CSS class of the answer that ends a translation."""
    return " end" if name == say("answers.end") else ""


def _wrong(answer: Answer) -> str:
    return " w" if answer.is_wrong else ""


def sentence_about(answer: Answer) -> str:
    """A sentence about an answer. script/words.js has the same function."""
    first, *others = answer.best
    words = say("answers.predicts", choice=_choice(first))
    if answer.target is not None:
        target = say("answers.target", choice=_choice(answer.target))
        words = (
            clauses(words, target) if first[1] is None else f"{words} ✓" if answer.is_correct else f"{words} ✗ {target}"
        )
    return say("answers.and_second", answer=words, second=_choice(others[0])) if others else words


def _choice(choice: Choice) -> str:
    if choice.probability is None:
        return choice.text
    name = quoted(choice.name) if len(choice.name) == 1 else choice.name
    return f"{name} {percent(choice.probability)}"


def shade(value: float) -> str:
    """The CSS class of a shade: n10 for -1, p0 for 0, p10 for 1."""
    level = round(min(1.0, abs(float(value))) * _SHADES)
    return f"{'p' if value >= 0 or not level else 'n'}{level}"
