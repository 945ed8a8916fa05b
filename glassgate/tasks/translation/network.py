"""The sequence-to-sequence network: an encoder, and a decoder that attends to the states of the encoder."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.networks.encoder import States, as_hx, as_tuple
from glassgate.tasks.networks.encoder import encoder as build_layers
from glassgate.tasks.networks.linear import Linear, Tied
from glassgate.tasks.translation.attention import Attention, Memory


class Output(NamedTuple):
    """The output for a batch.

    Attributes:
        scores: `(N, T, V - 1)`, the scores of all V tokens except padding (token 0) at each target position, given the
            earlier target tokens; None without a target
        memory: keys and values of the encoder's states
        state: the initial state of the decoder
    """

    scores: Tensor | None
    memory: Memory
    state: States


class Translator(nn.Module):
    """An encoder of any depth and direction, and a decoder of one direction.

    The sizes of the vocabularies include padding and unknown. If `joint`, both sides share one embedding.
    """

    def __init__(self, options: Any, source_size: int, target_size: int, joint: bool = False):
        super().__init__()
        self.teacher_forcing = 1.0  # in training, the probability that a step gets the true previous token
        self.embedding = None if joint else nn.Embedding(source_size, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = build_layers(options)
        self.bridge = Bridge(self.encoder)
        self.decoder = Decoder(options, target_size, self.encoder)

    def forward(self, batch: Batch) -> Output:
        """Encode the sources of a batch, `(N, S)`, and score its target tokens, `(N, T)`, if it has a target."""
        memory, state = self.encode(batch["source"], batch["lengths"])
        if "target" not in batch:
            return Output(None, memory, state)
        previous = nn.functional.pad(batch["target"], (1, -1), value=PADDING)
        teacher_forcing = self.teacher_forcing if self.training else 1.0
        return Output(self.decoder(previous, memory, state, teacher_forcing), memory, state)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Memory, States]:
        """Encode sources, `(N, S)`, of lengths `(N,)`; return the memory and the initial states of the decoder."""
        vectors = (self.embedding or self.decoder.embedding)(source)
        output, final = self.encoder(self.dropout(vectors), lengths=lengths)
        return self.decoder.memory(self.dropout(output), lengths), self.bridge(final)


class Bridge(nn.Module):
    """Map the final states of the encoder's directions to the initial states of the decoder, layer by layer.

    The first state, which is the output, and a state called c are mapped. Other states, such as the counters of sLSTM,
    start at zero.
    """

    def __init__(self, encoder: gg.Recurrent):
        super().__init__()
        self.names, self.directions, layers = encoder.cell.state, encoder.num_directions, encoder.num_layers
        size = encoder.output_size // encoder.num_directions
        self.layers = nn.ModuleDict(
            {
                name: nn.ModuleList(nn.Linear(self.directions * size, size) for _ in range(layers))
                for name in self.names
                if name in (self.names[0], "c")
            }
        )

    def forward(self, final: Tensor | States) -> States:
        """Map each state from `(num_layers * D, N, H)` to `(num_layers, N, H)`."""
        initial = []
        for name, state in zip(self.names, as_tuple(final), strict=True):
            by_layer = state.unflatten(0, (-1, self.directions)).transpose(1, 2).flatten(2)  # (num_layers, N, D * H)
            if name not in self.layers:
                initial.append(by_layer.new_zeros(*by_layer.shape[:2], state.shape[-1]))
                continue
            linears = self.layers[name]
            assert isinstance(linears, nn.ModuleList)
            mapped = torch.stack([linear(vector) for linear, vector in zip(linears, by_layer, strict=True)])
            initial.append(mapped.tanh() if name == self.names[0] else mapped)
        return tuple(initial)


class Decoder(nn.Module):
    """Embed the previous tokens, run layers of one direction, attend to the source, and score the next token.

    The scores of a step are computed from its readout, `tanh(W [context, state])` (Luong, Pham & Manning 2015, equation
    5); `Attention` has already applied the columns of W for the context. With input feeding, the readout of a step is
    concatenated with the embedding that the next step reads, so that the decoder takes its previous attention into
    account. The steps then run one after another; otherwise one call runs all steps. With `wide_output`, the readout is
    the concatenation of the context, the state and the embedding of the previous token, without a matrix W, and input
    feeding uses only the context (Bahdanau, Cho & Bengio 2015): the first `feedback_size` values of a readout.
    """

    def __init__(self, options: Any, vocabulary_size: int, source_encoder: gg.Recurrent):
        super().__init__()
        size, attends = options.hidden_size, options.attention != "none"
        self.size, self.input_feeding, self.wide = size, options.input_feeding, options.wide_output
        self.embedding = nn.Embedding(vocabulary_size, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.attention = self.combine = None
        self.readout_size = self.feedback_size = size
        if self.wide:
            self.feedback_size = source_encoder.output_size if attends else size
            self.readout_size = options.embedding_size + size + attends * source_encoder.output_size
        input_size = options.embedding_size + self.input_feeding * self.feedback_size
        self.layer = build_layers(replace(options, bidirectional=False), input_size)
        if attends:
            sizes = size, source_encoder.output_size, source_encoder.num_directions
            self.attention = Attention(options.attention, *sizes, plain=self.wide)
            self.combine = None if self.wide else Linear(size, size)
        self.head: nn.Module = (
            Tied(self.embedding, self.readout_size)
            if options.tied
            else Linear(self.readout_size, vocabulary_size - UNKNOWN)
        )

    def memory(self, states: Tensor, lengths: Tensor) -> Memory:
        """Return the memory for the encoder's states, `(N, S, M)`, and the lengths of the sources, `(N,)`."""
        if self.attention is not None:
            return self.attention.memory(states, lengths)
        return Memory(states, states, lengths)

    def forward(self, previous: Tensor, memory: Memory, state: States, teacher_forcing: float = 1.0) -> Tensor:
        """Return the `Output.scores`, `(N, T, V - 1)`. The arguments are those of `readouts`."""
        return self.scores(self.readouts(previous, memory, state, teacher_forcing)[0])

    def readouts(
        self, previous: Tensor, memory: Memory, state: States, teacher_forcing: float = 1.0
    ) -> tuple[Tensor, Tensor | None]:
        """Run all steps. Return the readouts, `(N, T, F)`, and the attention weights, `(N, T, S)`, or None.

        Args:
            previous: the token before each target token, `(N, T)`; padding before the first one
            memory: the encoder's states
            state: the initial state
            teacher_forcing: the probability that a step gets the true previous token instead of the predicted one
        """
        vectors = self.dropout(self.embedding(previous))
        if not self.input_feeding and teacher_forcing == 1.0:
            output = self.layer(vectors, as_hx(state))[0]
            context, attention = self.attend(output, memory)
            return self.readout(output, context, vectors), attention
        readouts: list[Tensor] = []
        weights: list[Tensor] = []
        readout = vectors.new_zeros(len(previous), self.readout_size)
        for step in range(previous.shape[1]):
            vector = vectors[:, step]
            if step and teacher_forcing < 1.0:
                predicted = self.scores(readout).argmax(-1) + UNKNOWN
                is_forced = torch.rand(len(previous), device=previous.device) < teacher_forcing
                vector = torch.where(is_forced[:, None], vector, self.dropout(self.embedding(predicted)))
            output, new_state = self.layer(self.input(vector, readout)[:, None], as_hx(state))
            state = as_tuple(new_state)
            context, weight = self.attend(output, memory)
            readout = self.readout(output, context, vector[:, None])[:, 0]
            readouts.append(readout)
            if weight is not None:
                weights.append(weight[:, 0])
        return torch.stack(readouts, 1), torch.stack(weights, 1) if weights else None

    def input(self, vectors: Tensor, readout: Tensor) -> Tensor:
        """Return the input of the layers: the embeddings, `(N, E)`, and with input feeding also the last readout."""
        return torch.cat([vectors, readout[:, : self.feedback_size]], -1) if self.input_feeding else vectors

    def attend(self, output: Tensor, memory: Memory) -> tuple[Tensor | None, Tensor | None]:
        """Return the contexts and the attention weights for the layers' output, `(N, T, H)`; None without attention."""
        return (None, None) if self.attention is None else self.attention(output, memory)

    def readout(self, output: Tensor, context: Tensor | None, vectors: Tensor) -> Tensor:
        """Return the readout of each step for the layers' output, its context, and the previous token's embedding."""
        if self.wide:
            features = output if context is None else torch.cat([context, output], -1)
            return torch.cat([self.dropout(features), vectors], -1)
        if context is None or self.combine is None:
            return self.dropout(output)
        return self.dropout((context + self.combine(output)).tanh())

    def scores(self, readouts: Tensor) -> Tensor:
        """Return the scores of all tokens except padding, `(..., V - 1)`, for readouts `(..., F)`."""
        is_tied = isinstance(self.head, Tied)
        scores: Tensor = self.head(readouts, self.embedding.weight) if is_tied else self.head(readouts)
        return scores
