"""Exports language models as ONNX models that map tokens or notes, and states, to predictions and new states."""

import torch
from torch import Tensor

from glassgate.tasks.language_model.music import NUM_KEYS
from glassgate.tasks.language_model.network import LanguageNetwork
from glassgate.tasks.language_model.task import LanguageModel
from glassgate.tasks.networks.encoder import States, as_hx, as_tuple
from glassgate.tasks.onnx.models import Function, Model, random_states, state_names


class _Next(Function[LanguageNetwork]):
    """The network as a function of tensors."""

    def forward(self, steps: Tensor, states: States) -> tuple[Tensor, ...]:
        """Return the predictions for the step after each input, and the new states.

        The predictions are the log-probabilities of all V tokens except padding, (N, L, V - 1), or the probabilities
        of keys, (N, L, 88).
        """
        scores, state = self.network.advance(steps, None, as_hx(states))
        predictions = scores.sigmoid() if self.network.embedding is None else scores.log_softmax(-1)
        return predictions, *as_tuple(state)


def export(task: LanguageModel) -> list[Model]:
    """Return the model. The caller passes the returned states to the next call."""
    network = task.network
    layer = network.encoder
    reads_notes = network.embedding is None
    axes = {"notes": "N L *"} if reads_notes else {"units": "N L"}

    def random_inputs(N: int, L: int) -> tuple[Tensor, States]:
        steps = (
            torch.randint(2, (N, L, NUM_KEYS)).float()
            if reads_notes
            else torch.randint(len(task.vocabularies["units"]), (N, L))
        )
        return steps, random_states(layer, N)

    axes |= dict.fromkeys(state_names(layer, "0"), "* N *")
    outputs = ["probabilities" if reads_notes else "log_probabilities", *state_names(layer, "n")]
    return [Model(_Next(network), axes, random_inputs, outputs)]
