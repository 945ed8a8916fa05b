"""Tagging as an ONNX model: from tokens, and their characters, to scores of labels."""

import torch
from torch import Tensor, nn

from glassgate.tasks.data.vocabulary import PADDING
from glassgate.tasks.onnx_models import inputs
from glassgate.tasks.onnx_models.models import Exported, Model
from glassgate.tasks.tagging.network import Tagger
from glassgate.tasks.tagging.task import Tagging

_FORBIDDEN = -1e9
"""The score of a transition that is never taken; JSON has no infinity."""
_WORD_LENGTH = 4  # characters of a word in random inputs


class _Labels(nn.Module):
    """The network as a function of tensors."""

    def __init__(self, network: Tagger) -> None:
        super().__init__()
        self.network = network

    def forward(self, units: Tensor, lengths: Tensor, characters: Tensor | None = None) -> tuple[Tensor, ...]:
        """The scores of labels, (N, L, K), and of intents, (N, I), if the run has them."""
        batch = {"units": units, "lengths": lengths}
        scores = self.network(batch if characters is None else batch | {"characters": characters})
        return tuple(each for each in scores if each is not None)


def exported(task: Tagging) -> Exported:
    """Return the model. Its decoding tables are the scores of first labels, of transitions and of last labels."""
    network, known = task.network, task.vocabularies
    axes = {"units": "N L", "lengths": "N"} | ({"characters": "N L W"} if network.spelling else {})

    def draw(N: int, L: int) -> tuple[Tensor, ...]:
        units, lengths = inputs.random_indices(N, L, len(known["units"]))
        if not network.spelling:
            return units, lengths
        words = torch.randint(1, len(known["characters"]), (N, L, _WORD_LENGTH))
        return units, lengths, words.masked_fill((units == PADDING)[..., None], PADDING)

    outputs = ["labels"] if network.intent_head is None else ["labels", "intents"]
    return Exported([Model(_Labels(network), axes, draw, outputs)], _chain(network))


def _chain(network: Tagger) -> dict[str, list[float] | list[list[float]]]:
    labels = network.head.out_features
    chain = network.chain()
    if chain is None:
        chain = torch.zeros(labels), torch.zeros(labels, labels), torch.zeros(labels)
    start, transitions, end = (each.detach().clamp(min=_FORBIDDEN).tolist() for each in chain)
    return {"start": start, "transitions": transitions, "end": end}
