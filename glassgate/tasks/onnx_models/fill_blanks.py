"""Filling blanks as two ONNX models: one reads the text after a blank, the other the text before it and predicts."""

import torch
from torch import Tensor, nn

from glassgate.tasks.fill_blanks.network import BlankNetwork
from glassgate.tasks.fill_blanks.task import FillBlanks
from glassgate.tasks.networks.states import States, as_hx, as_tuple
from glassgate.tasks.onnx_models import inputs
from glassgate.tasks.onnx_models.models import Exported, Model


class _After(nn.Module):
    """The reverse direction, which reads the text after a blank."""

    def __init__(self, network: BlankNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """The output for the token next to the blank, (N, H); zero for an empty text."""
        _, backward, _ = self.network.read(tokens, lengths)
        assert backward is not None
        return backward[:, 0]


class _Before(nn.Module):
    """The forward direction, which reads the text before a blank, and the scores for the blank."""

    def __init__(self, network: BlankNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, tokens: Tensor, lengths: Tensor, states: States, missing: Tensor, after: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Read tokens, and score the next one.

        Args:
            tokens: the text before the blank, (N, L); in later calls the last predicted token.
            lengths: (N,), zero allowed.
            states: (num_layers, N, H) each; initially zero.
            missing: the number of tokens of the blank that are still missing, (N,).
            after: the output of the other model, (N, H).

        Returns:
            the log-probabilities of the next token, (N, U), and of the length of the blank, with column k for k + 1
            tokens; then the states.
        """
        network, directions = self.network, self.network.encoder.num_directions
        # The layer takes the states of both directions, but those of the reverse one do not affect the forward one.
        both = tuple(torch.stack([each] * directions, 1).flatten(0, 1) for each in states)
        _, _, state = network.read(tokens, lengths, as_hx(both))
        assert state is not None
        new = tuple(each.unflatten(0, (-1, directions))[:, 0] for each in as_tuple(state))
        before = new[0][-1]
        scores = network.unit_scores(before, after, missing), network.length_scores(before, after)
        return *(each.log_softmax(-1) for each in scores), *new


def exported(task: FillBlanks) -> Exported:
    """Return the models. A network of one direction has no model for the text after a blank."""
    network = task.network
    assert isinstance(network, BlankNetwork)
    layer, count = network.encoder, len(task.vocabularies["units"])
    text = {"units": "N L", "lengths": "N"}
    axes = text | dict.fromkeys(inputs.names(layer, "0"), "* N *") | {"missing": "N"}
    axes |= {"after": "N *"} if layer.bidirectional else {}

    def draw(N: int, L: int) -> tuple[Tensor | States, ...]:
        missing = torch.randint(1, network.longest + 1, (N,))
        example = (*inputs.random_indices(N, L, count), inputs.random_states(layer, N), missing)
        return (*example, torch.randn(N, task.options.hidden_size)) if layer.bidirectional else example

    outputs = ["log_probabilities", "length_log_probabilities", *inputs.names(layer, "n")]
    before = Model(_Before(network), axes, draw, outputs, "before" if layer.bidirectional else "")
    if not layer.bidirectional:
        return Exported([before])
    return Exported(
        [before, Model(_After(network), text, lambda N, L: inputs.random_indices(N, L, count), ["after"], "after")]
    )
