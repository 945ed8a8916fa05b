"""Translation as two ONNX models: the encoder, and one step of the decoder."""

import torch
from torch import Tensor, nn

from glassgate.tasks.networks.states import States, as_hx, as_tuple, step_mask
from glassgate.tasks.onnx_models import inputs
from glassgate.tasks.onnx_models.models import Exported, Model
from glassgate.tasks.translation.attention import Memory
from glassgate.tasks.translation.network import Translator
from glassgate.tasks.translation.task import Translation


class _Encoder(nn.Module):
    """From sources to the decoder's initial states and, with attention, its memory."""

    def __init__(self, network: Translator) -> None:
        super().__init__()
        self.network = network

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """The initial states (num_layers, N, H); with attention the values and the keys (N, S, H)."""
        memory, state = self.network.encode(source, lengths)
        return state if self.network.decoder.attention is None else (*state, memory.values, memory.keys)


class _Decoder(nn.Module):
    """One step of the decoder."""

    def __init__(self, network: Translator) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, before: Tensor, states: States, look: Tensor | None, memory: tuple[Tensor, Tensor, Tensor] | None
    ) -> tuple[Tensor, ...]:
        """Score the next token.

        Args:
            before: the previous token, (N,); initially 0.
            states: (num_layers, N, H) each.
            look: with input feeding, the previous `look`, (N, H); initially zero.
            memory: with attention, values and keys, (N, S, H), and the lengths of the sources, (N,).

        Returns:
            the log-probabilities (N, U), the states and, with input feeding, the next `look`.
        """
        decoder = self.network.decoder
        vectors = decoder.embedding(before)
        read = vectors if look is None else decoder.input(vectors, look)
        output, state = decoder.layer(read[:, None], as_hx(states))
        context = None
        if memory is not None:
            values, keys, lengths = memory
            context, _ = decoder.attend(output, Memory(values, keys, step_mask(lengths, values)))
        new = decoder.look(output, context, vectors[:, None])[:, 0]
        chances = decoder.scores(new).log_softmax(-1)
        return chances, *as_tuple(state), *(() if look is None else (new,))


def exported(task: Translation) -> Exported:
    """The models. Feed the states of the decoder and, with input feeding, `look` back at each step."""
    network = task.network
    assert isinstance(network, Translator)
    decoder, known = network.decoder, task.vocabularies
    layer, attends = decoder.layer, decoder.attention is not None
    memory_names = ["values", "keys"] if attends else []

    def source(N: int, L: int) -> tuple[Tensor, Tensor]:
        return inputs.numbers(N, L, len(known["source"]))

    @torch.no_grad()
    def step(N: int, L: int) -> tuple[Tensor | States | None, ...]:
        units, lengths = source(N, L)
        memory, state = network.encode(units, lengths)
        before = torch.randint(len(known["target"]), (N,))
        look = torch.randn(N, decoder.look_size) if decoder.feeding else None
        return before, state, look, (memory.values, memory.keys, lengths) if attends else None

    axes = {"before": "N"} | dict.fromkeys(inputs.names(layer, "0"), "* N *")
    axes |= {"look": "N *"} if decoder.feeding else {}
    axes |= {"values": "N S *", "keys": "N S *", "lengths": "N"} if attends else {}
    scores = ["log_probabilities", *inputs.names(layer, "n"), *(["next_look"] if decoder.feeding else [])]
    return Exported(
        [
            Model(
                _Encoder(network),
                {"source": "N S", "lengths": "N"},
                source,
                [*inputs.names(layer, "0"), *memory_names],
                "encoder",
            ),
            Model(_Decoder(network), axes, step, scores, "decoder"),
        ]
    )
