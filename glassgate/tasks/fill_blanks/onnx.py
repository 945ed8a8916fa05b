"""Filling blanks as two ONNX models.

The model "after" reads the text after a blank. The model "before" reads the text before it and predicts the blank.
"""

from functools import partial

import torch
from torch import Tensor

from glassgate.tasks.fill_blanks.network import BlankNetwork
from glassgate.tasks.fill_blanks.task import FillBlanks
from glassgate.tasks.networks.encoder import States, as_hx, as_tuple
from glassgate.tasks.onnx.models import Function, Model, random_indices, random_states, state_names


class _After(Function[BlankNetwork]):
    """The reverse direction, which reads the text after a blank."""

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the output for the token after the blank, (N, H); zero for an empty text."""
        _, backward, _ = self.network.read(tokens, lengths)
        assert backward is not None
        return backward[:, 0]


class _Before(Function[BlankNetwork]):
    """The forward direction, which reads the text before a blank, and the scores for the blank."""

    def forward(
        self, tokens: Tensor, lengths: Tensor, states: States, missing: Tensor, after: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Read tokens, and score the next one.

        Args:
            tokens: in the first call the text before the blank, in later calls the last predicted token, (N, L).
            lengths: the number of tokens of each sequence, (N,); 0 is allowed.
            states: (num_layers, N, H) each; zero in the first call, then the states that the last call returned.
            missing: the number of tokens of the blank that are not predicted yet, (N,).
            after: the output of the model "after", (N, H); None for a network of one direction.

        Returns:
            the log-probabilities of the next token, (N, V - 1), without padding; the log-probabilities of the length of
            the blank, where column k is for k + 1 tokens; and the new states.
        """
        network, directions = self.network, self.network.encoder.num_directions
        # The layer takes the states of both directions, but the reverse states do not affect the forward direction.
        repeated_states = tuple(torch.stack([state] * directions, 1).flatten(0, 1) for state in states)
        _, _, final_states = network.read(tokens, lengths, as_hx(repeated_states))
        assert final_states is not None
        new_states = tuple(state.unflatten(0, (-1, directions))[:, 0] for state in as_tuple(final_states))
        before = new_states[0][-1]
        token_scores, length_scores = network.token_scores(before, after, missing), network.length_scores(before, after)
        return token_scores.log_softmax(-1), length_scores.log_softmax(-1), *new_states


def export(task: FillBlanks) -> list[Model]:
    """Return the models. A network of one direction has no model for the text after a blank."""
    network = task.network
    layer, vocabulary_size = network.encoder, len(task.vocabularies["units"])
    text_axes = {"units": "N L", "lengths": "N"}
    axes = text_axes | dict.fromkeys(state_names(layer, "0"), "* N *") | {"missing": "N"}
    axes |= {"after": "N *"} if layer.bidirectional else {}

    def random_inputs(N: int, L: int) -> tuple[Tensor | States, ...]:
        missing = torch.randint(1, network.longest + 1, (N,))
        example = (*random_indices(N, L, vocabulary_size), random_states(layer, N), missing)
        return (*example, torch.randn(N, task.options.hidden_size)) if layer.bidirectional else example

    outputs = ["log_probabilities", "length_log_probabilities", *state_names(layer, "n")]
    before = Model(_Before(network), axes, random_inputs, outputs, "before" if layer.bidirectional else "")
    if not layer.bidirectional:
        return [before]
    after_inputs = partial(random_indices, count=vocabulary_size)
    return [before, Model(_After(network), text_axes, after_inputs, ["after"], "after")]
