"""`make claims` updates the pages of claims, also if no problem was solved and pictures are missing."""

import json
import shutil

import pytest

from experiments.claims import __main__ as claims

CONTENT = {
    "compare": {
        "problems": [
            {
                "problem": "adding", "lag": 100, "cell": "lstm", "forget_bias": None, "solved": 0, "seeds": 3,
                "median_sequences_until_solved": None, "reported": 74_000, "reported_in": "1997",
            }
        ],
        "gradients": [{"label": "lstm", "output": [2.0, 1.0]}],
    },
    "directions": {"taggers": [], "language_models": []},
    "products": {"rows": [], "machine": {"processor": "a processor", "torch": "2.13"}},
}  # fmt: skip


def test_pages_keep_pictures_that_a_comparison_did_not_draw(tmp_path, capsys: pytest.CaptureFixture[str]):
    docs, folder = tmp_path / "docs", tmp_path / "runs"
    docs.mkdir()
    folder.mkdir()
    for page in claims.PAGES:
        shutil.copyfile(claims.DOCS / page, docs / page)
    for name, content in CONTENT.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    drawn_pictures = ("gradients", "taggers-reach", "language-models", "models-reach", "variants")
    for name in drawn_pictures:
        (folder / f"{name}.svg").write_text("<svg/>")
    claims.main(folder, docs)
    assert {path.stem for path in (docs / "claims").iterdir()} == {*drawn_pictures}
    assert "| adding | 100 | lstm | 0 / 3 | - | 74,000 (1997) |" in (docs / claims.PAGES[0]).read_text()
    printed = capsys.readouterr().out
    assert f"{folder / 'learning.svg'}: not drawn, because no problem was solved; the page keeps its picture" in printed
    assert printed.count("not drawn") == 2
