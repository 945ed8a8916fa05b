"""Translation as two ONNX models: the encoder, and one step of the decoder."""

import torch
from torch import Tensor

from glassgate.tasks.networks.encoder import States, as_hx, as_tuple
from glassgate.tasks.onnx.models import Function, Model, random_indices, state_names
from glassgate.tasks.translation.attention import Memory
from glassgate.tasks.translation.network import Translator
from glassgate.tasks.translation.task import Translation


class _Encoder(Function[Translator]):
    """Maps sources to the initial states of the decoder and, with attention, its memory (values and keys)."""

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """Return the initial states, (num_layers, N, H) each; with attention also values and keys, (N, S, H)."""
        memory, state = self.network.encode(source, lengths)
        return state if self.network.decoder.attention is None else (*state, memory.values, memory.keys)


class _Decoder(Function[Translator]):
    """One step of the decoder."""

    def forward(
        self, previous: Tensor, states: States, readout: Tensor | None, memory: tuple[Tensor, Tensor, Tensor] | None
    ) -> tuple[Tensor, ...]:
        """Score the next token.

        Args:
            previous: the previous token, (N,); 0 in the first step.
            states: (num_layers, N, H) each; in the first step those of the encoder.
            readout: with input feeding, the readout of the previous step, (N, F); zero in the first step.
            memory: with attention, values and keys, (N, S, H) each, and the lengths of the sources, (N,).

        Returns:
            the log-probability of each token except padding, (N, V - 1); the new states; and, with input feeding, the
            readout for the next step.
        """
        decoder = self.network.decoder
        vectors = decoder.embedding(previous)
        x = vectors if readout is None else decoder.input(vectors, readout)
        output, state = decoder.layer(x[:, None], as_hx(states))
        context = None
        if memory is not None:
            values, keys, lengths = memory
            context, _ = decoder.attend(output, Memory(values, keys, lengths))
        next_readout = decoder.readout(output, context, vectors[:, None])[:, 0]
        log_probabilities = decoder.scores(next_readout).log_softmax(-1)
        return log_probabilities, *as_tuple(state), *(() if readout is None else (next_readout,))


def export(task: Translation) -> list[Model]:
    """Return the models. The caller passes the states and, with input feeding, `next_readout` to the next step."""
    network = task.network
    decoder, vocabularies = network.decoder, task.vocabularies
    layer, attends = decoder.layer, decoder.attention is not None

    def encoder_inputs(N: int, L: int) -> tuple[Tensor, Tensor]:
        return random_indices(N, L, len(vocabularies["source"]))

    @torch.no_grad()
    def decoder_inputs(N: int, L: int) -> tuple[Tensor | States | None, ...]:
        tokens, lengths = encoder_inputs(N, L)
        memory, state = network.encode(tokens, lengths)
        previous = torch.randint(len(vocabularies["target"]), (N,))
        readout = torch.randn(N, decoder.readout_size) if decoder.input_feeding else None
        return previous, state, readout, (memory.values, memory.keys, lengths) if attends else None

    axes = {"previous": "N"} | dict.fromkeys(state_names(layer, "0"), "* N *")
    axes |= {"readout": "N *"} if decoder.input_feeding else {}
    axes |= {"values": "N S *", "keys": "N S *", "lengths": "N"} if attends else {}
    outputs = ["log_probabilities", *state_names(layer, "n"), *(["next_readout"] if decoder.input_feeding else [])]
    encoded = [*state_names(layer, "0"), *(["values", "keys"] if attends else [])]
    encoder = Model(_Encoder(network), {"source": "N S", "lengths": "N"}, encoder_inputs, encoded, "encoder")
    return [encoder, Model(_Decoder(network), axes, decoder_inputs, outputs, "decoder")]
