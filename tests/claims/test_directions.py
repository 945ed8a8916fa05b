import json

import pytest
import torch

from glassgate.claims import directions
from glassgate.claims.directions import REACH, DirectionalNetwork, Settings, next_tokens, sensitivity, to_texts
from glassgate.cli.compare import command
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError, UserError


def _examples(count=40, length=120):
    """Random letters. The label of a letter is the next letter, which only a network that reads backward has read."""
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
        train, test = to_texts(_examples()[:30], _examples()[30:])
        yield directions.measure(train, test, Settings(updates=150, seeds=1), report=lambda _: None)
    torch.set_num_threads(threads)


def test_taggers_that_read_backward_predict_labels_that_depend_on_later_tokens(results):
    accuracy = {row["reads"]: row["accuracy"][0] for row in results["taggers"]}
    assert accuracy["forward"] < 0.4
    assert accuracy["backward"] > 0.95
    assert accuracy["both"] > 0.95


def test_sensitivity_to_tokens_that_a_direction_has_not_read_is_zero(results):
    sensitivities = {row["reads"]: row["sensitivity"] for row in results["taggers"]}
    assert max(sensitivities["forward"][REACH + 1 :]) == 0.0
    assert max(sensitivities["backward"][:REACH]) == 0.0
    assert sensitivities["both"][REACH + 1] > 0.3


def test_a_bidirectional_language_model_reads_its_target(results):
    forward, both = results["language_models"]
    assert both["loss"][-1] < 0.1 * forward["loss"][-1]
    assert both["sensitivity"][REACH + 1] > 0.3
    assert max(forward["sensitivity"][REACH + 1 :]) == 0.0


def test_sensitivity_is_the_mean_norm_of_gradients_of_single_sequences():
    torch.manual_seed(0)
    text, _ = to_texts(_examples(), _examples()[:2])
    network = DirectionalNetwork("both", len(text.symbols), len(text.label_names))
    rows = (text.lengths == directions.LENGTH).nonzero()[:64, 0]
    t, norms = directions.LENGTH // 2, 0.0
    for row in rows:
        x = network.embedding(text.tokens[row][None]).detach().requires_grad_()
        network(x, text.lengths[row][None])[0, t, text.labels[row, t]].backward()
        norms = norms + x.grad[0].norm(dim=-1)
    expected = norms[t - REACH : t + REACH + 1]
    assert sensitivity(network, text, text.labels) == pytest.approx((expected / expected.max()).tolist(), rel=1e-4)


def test_the_target_of_a_language_model_is_the_next_token():
    text, _ = to_texts([Tagged("abca", list("xyxy"))], [Tagged("ab", list("xy"))])
    assert next_tokens(text)[0, :5].tolist() == [*text.tokens[0, 1:4].tolist(), -100, -100]


def test_a_file_of_labelled_text_becomes_a_page(tmp_path, monkeypatch):
    file = tmp_path / "words.tsv"
    file.write_text("".join(f"the\tD\n{noun}\tN\nsleeps\tV\n\n" for noun in ("cat", "dog", "fox", "hen") * 20))
    monkeypatch.setattr(directions, "BATCH_SIZE", 4)
    command(["directions", "--quick", "--data", str(file), "-o", str(tmp_path / "out")])
    content = json.loads((tmp_path / "out" / "directions.json").read_text())
    assert [row["reads"] for row in content["taggers"]] == ["forward", "backward", "both"]
    assert "two directions" in (tmp_path / "out" / "directions.html").read_text()


def test_invalid_options_and_data_raise_errors(tmp_path):
    with pytest.raises(UserError, match="--test requires --data"):
        command(["directions", "--test", "file.tsv"])
    with pytest.raises(DataError, match="expected labels"):
        to_texts([Tagged("ab", None)], [])
