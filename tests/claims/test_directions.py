import json

import pytest
import torch

from glassgate.claims import directions
from glassgate.claims.directions import REACH, Reader, Settings, next_tokens, sensitivity, text_of
from glassgate.cli.compare import command
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError, UserError


def _examples(count=40, length=120):
    """The label of a letter is the letter that follows: only who reads backward can know it."""
    generator = torch.Generator().manual_seed(0)
    texts = ["".join("abcd"[k] for k in torch.randint(0, 4, (length,), generator=generator)) for _ in range(count)]
    return [Tagged(text, list(text[1:] + "a")) for text in texts]


@pytest.fixture(scope="module")
def results():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directions, "PARAMETERS", 6_000)
        patch.setattr(directions, "BATCH_SIZE", 8)
        train, test = text_of(_examples()[:30], _examples()[30:])
        yield directions.measure(train, test, Settings(updates=150, seeds=1), report=lambda _: None)
    torch.set_num_threads(threads)


def test_taggers_that_read_backward_predict_labels_that_depend_on_later_tokens(results):
    right = {row["reads"]: row["accuracy"][0] for row in results["taggers"]}
    assert right["forward"] < 0.4
    assert right["backward"] > 0.95
    assert right["both"] > 0.95


def test_sensitivity_is_zero_to_tokens_that_a_direction_has_not_read(results):
    reach = {row["reads"]: row["sensitivity"] for row in results["taggers"]}
    assert max(reach["forward"][REACH + 1 :]) == 0.0
    assert max(reach["backward"][:REACH]) == 0.0
    assert reach["both"][REACH + 1] > 0.3


def test_a_bidirectional_language_model_has_access_to_its_target(results):
    forward, both = results["language_models"]
    assert both["loss"][-1] < 0.1 * forward["loss"][-1]
    assert both["sensitivity"][REACH + 1] > 0.3
    assert max(forward["sensitivity"][REACH + 1 :]) == 0.0


def test_sensitivity_is_the_gradient_of_each_row_alone():
    torch.manual_seed(0)
    text, _ = text_of(_examples(), _examples()[:2])
    reader = Reader("both", len(text.symbols), len(text.label_names))
    rows = (text.lengths == directions.LENGTH).nonzero()[:64, 0]
    t, total = directions.LENGTH // 2, 0.0
    for row in rows:
        x = reader.embedding(text.tokens[row][None]).detach().requires_grad_()
        reader(x, text.lengths[row][None])[0, t, text.labels[row, t]].backward()
        total = total + x.grad[0].norm(dim=-1)
    expected = total[t - REACH : t + REACH + 1]
    assert sensitivity(reader, text, text.labels) == pytest.approx((expected / expected.max()).tolist(), rel=1e-4)


def test_the_target_of_a_language_model_is_the_next_token():
    text, _ = text_of([Tagged("abca", list("xyxy"))], [Tagged("ab", list("xy"))])
    assert next_tokens(text)[0, :5].tolist() == [*text.tokens[0, 1:4].tolist(), -100, -100]


def test_a_users_file_makes_a_page(tmp_path, monkeypatch):
    file = tmp_path / "words.tsv"
    file.write_text("".join(f"the\tD\n{noun}\tN\nsleeps\tV\n\n" for noun in ("cat", "dog", "fox", "hen") * 20))
    monkeypatch.setattr(directions, "BATCH_SIZE", 4)
    command(["directions", "--quick", "--data", str(file), "-o", str(tmp_path / "out")])
    content = json.loads((tmp_path / "out" / "directions.json").read_text())
    assert [row["reads"] for row in content["taggers"]] == ["forward", "backward", "both"]
    assert "two directions" in (tmp_path / "out" / "directions.html").read_text()


def test_an_invalid_comparison_raises_an_error(tmp_path):
    with pytest.raises(UserError, match="--test requires --data"):
        command(["directions", "--test", "file.tsv"])
    with pytest.raises(DataError, match="expected labels"):
        text_of([Tagged("ab", None)], [])
