"""Exports tagging as an ONNX model that computes scores of labels from tokens and their characters."""

import torch
from torch import Tensor

from glassgate.tasks.data.vocabulary import PADDING
from glassgate.tasks.onnx.models import Function, Model, random_indices
from glassgate.tasks.tagging.network import Tagger
from glassgate.tasks.tagging.task import Tagging

_FORBIDDEN = -1e9
"""The score of a forbidden transition in JSON, which has no infinity."""
_WORD_LENGTH = 4  # characters of a word in random inputs


class _Labels(Function[Tagger]):
    """The network as a function of tensors."""

    def forward(self, tokens: Tensor, lengths: Tensor, characters: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the scores of labels, (N, L, K), and of intents, (N, I), if the run has intents."""
        batch = {"units": tokens, "lengths": lengths}
        scores = self.network(batch if characters is None else batch | {"characters": characters})
        return tuple(each for each in scores if each is not None)


def export(task: Tagging) -> list[Model]:
    """Return the model. Its decoding tables are the scores of first labels, of transitions and of last labels."""
    network, vocabularies = task.network, task.vocabularies
    axes = {"units": "N L", "lengths": "N"} | ({"characters": "N L W"} if network.spelling else {})

    def random_inputs(N: int, L: int) -> tuple[Tensor, ...]:
        tokens, lengths = random_indices(N, L, len(vocabularies["units"]))
        if not network.spelling:
            return tokens, lengths
        characters = torch.randint(1, len(vocabularies["characters"]), (N, L, _WORD_LENGTH))
        return tokens, lengths, characters.masked_fill((tokens == PADDING)[..., None], PADDING)

    outputs = ["labels"] if network.intent_head is None else ["labels", "intents"]
    count = network.head.out_features
    chain = network.chain() or (torch.zeros(count), torch.zeros(count, count), torch.zeros(count))
    tables = [each.detach().clamp(min=_FORBIDDEN).tolist() for each in chain]
    decoding = dict(zip(("start", "transitions", "end"), tables, strict=True))
    return [Model(_Labels(network), axes, random_inputs, outputs, decoding=decoding)]
