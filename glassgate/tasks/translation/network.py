"""The sequence-to-sequence network: an encoder, and a decoder that attends to the states of the encoder."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.networks.encoder import encoder
from glassgate.tasks.networks.linear import Linear, Tied
from glassgate.tasks.networks.states import States, as_hx, as_tuple, step_mask
from glassgate.tasks.translation.attention import Attention, Memory


class Output(NamedTuple):
    """The output for a batch.

    Attributes:
        scores: the scores of each target token given the previous ones, `(N, T, tokens - 1)`; None without a target
        memory: the encoder's states, to attend to
        state: the initial state of the decoder
    """

    scores: Tensor | None
    memory: Memory
    state: States


class Translator(nn.Module):
    """An encoder of any depth and direction, and a decoder of one direction.

    Args:
        options: sizes, cell, attention
        sources: the size of the source vocabulary, including padding and unknown
        targets: the size of the target vocabulary
        joint: whether both sides share one vocabulary and its embedding
    """

    def __init__(self, options: Any, sources: int, targets: int, joint: bool = False):
        super().__init__()
        self.teacher = 1.0
        self.embedding = None if joint else nn.Embedding(sources, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options)
        self.bridge = Bridge(self.encoder)
        self.decoder = Decoder(options, targets, self.encoder)

    def forward(self, batch: Batch) -> Output:
        """Run a batch with `source`, `(N, S)`, `lengths`, `(N,)`, and `target`, `(N, T)`, if any, with its end."""
        memory, state = self.encode(batch["source"], batch["lengths"])
        if "target" not in batch:
            return Output(None, memory, state)
        before = nn.functional.pad(batch["target"], (1, -1), value=PADDING)
        return Output(self.decoder(before, memory, state, self.teacher if self.training else 1.0), memory, state)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Memory, States]:
        """Encode sources, `(N, S)`, of lengths `(N,)`; return the memory and the initial states of the decoder."""
        vectors = (self.embedding or self.decoder.embedding)(source)
        states, last = self.encoder(self.dropout(vectors), lengths=lengths)
        return self.decoder.remember(self.dropout(states), lengths), self.bridge(last)


class Bridge(nn.Module):
    """Map the final states of the encoder's directions to the initial states of the decoder, layer by layer.

    The output state, and a state called c, come from the states of the encoder. Others, such as the counters of sLSTM,
    start at zero.

    Args:
        encoder: the layers whose states are mapped
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

    def forward(self, last: Tensor | States) -> States:
        """Map each state from `(num_layers * D, N, H)` to `(num_layers, N, H)`."""
        first = []
        for name, state in zip(self.names, as_tuple(last), strict=True):
            both = state.unflatten(0, (-1, self.directions)).transpose(1, 2).flatten(2)
            if name not in self.layers:
                first.append(both.new_zeros(*both.shape[:2], state.shape[-1]))
                continue
            linear = self.layers[name]
            assert isinstance(linear, nn.ModuleList)
            new = torch.stack([of_layer(rows) for of_layer, rows in zip(linear, both, strict=True)])
            first.append(new.tanh() if name == self.names[0] else new)
        return tuple(first)


class Decoder(nn.Module):
    """Embed the previous tokens, run layers of one direction, attend to the source, and score the next token.

    Scores are computed from the vector of Luong's equation 5, `tanh(W [context, state])`. With input feeding, this
    vector is also concatenated with the embedding of the next step, so that the decoder knows its previous attention;
    the steps then run one after another. Without input feeding, one call runs all steps of a sentence. A wide output
    has no matrix W: scores are computed from the context, the state and the embedding of the previous token, and the
    context is fed (Bahdanau, Cho & Bengio 2015).

    Args:
        options: sizes, cell, attention
        units: the size of the vocabulary, including padding and unknown
        reader: the encoder whose states are attended to
    """

    def __init__(self, options: Any, units: int, reader: gg.Recurrent):
        super().__init__()
        size, reads = options.hidden_size, options.attention != "none"
        self.size, self.feeding, self.wide = size, options.input_feeding, options.wide_output
        self.embedding = nn.Embedding(units, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.attention = self.combine = None
        self.look_size = self.fed = size
        if self.wide:
            self.fed = reader.output_size if reads else size
            self.look_size = options.embedding_size + size + reads * reader.output_size
        self.layer = encoder(replace(options, bidirectional=False), options.embedding_size + self.feeding * self.fed)
        if reads:
            sizes = size, reader.output_size, reader.num_directions
            self.attention = Attention(options.attention, *sizes, plain=self.wide)
            self.combine = None if self.wide else Linear(size, size)
        self.head: nn.Module = (
            Tied(self.embedding, self.look_size) if options.tied else Linear(self.look_size, units - UNKNOWN)
        )

    def remember(self, states: Tensor, lengths: Tensor) -> Memory:
        """Store the encoder's states, `(N, S, M)`, of sources with these lengths, `(N,)`."""
        if self.attention is not None:
            return self.attention.memory(states, lengths)
        return Memory(states, states, step_mask(lengths, states))

    def forward(self, before: Tensor, memory: Memory, state: States, teacher: float = 1.0) -> Tensor:
        """Score each target token.

        Args:
            before: the token before each target token, `(N, T)`; padding before the first one
            memory: the encoder's states
            state: the initial state
            teacher: the probability that a step reads the true previous token rather than the decoder's best one

        Returns:
            the scores, `(N, T, tokens - 1)`
        """
        return self.scores(self.read(before, memory, state, teacher)[0])

    def read(self, before: Tensor, memory: Memory, state: States, teacher: float = 1.0) -> tuple[Tensor, Tensor | None]:
        """Return the vectors from which scores are computed, `(N, T, H)`, and the attention weights, `(N, T, S)`."""
        vectors = self.dropout(self.embedding(before))
        if not self.feeding and teacher == 1.0:
            output = self.layer(vectors, as_hx(state))[0]
            context, attention = self.attend(output, memory)
            return self.look(output, context, vectors), attention
        looks: list[Tensor] = []
        weights: list[Tensor] = []
        look = vectors.new_zeros(len(before), self.look_size)
        for step in range(before.shape[1]):
            vector = vectors[:, step]
            if step and teacher < 1.0:
                predicted = self.scores(look).argmax(-1) + UNKNOWN
                true = torch.rand(len(before), device=before.device) < teacher
                vector = torch.where(true[:, None], vector, self.dropout(self.embedding(predicted)))
            output, new = self.layer(self.input(vector, look)[:, None], as_hx(state))
            state = as_tuple(new)
            context, weight = self.attend(output, memory)
            look = self.look(output, context, vector[:, None])[:, 0]
            looks.append(look)
            if weight is not None:
                weights.append(weight[:, 0])
        return torch.stack(looks, 1), torch.stack(weights, 1) if weights else None

    def input(self, vectors: Tensor, look: Tensor) -> Tensor:
        """The input of the layers: a token's embedding, `(N, E)`, and with input feeding the last `look`, `(N, F)`."""
        return torch.cat([vectors, look[:, : self.fed]], -1) if self.feeding else vectors

    def attend(self, output: Tensor, memory: Memory) -> tuple[Tensor | None, Tensor | None]:
        """Return the contexts and the attention weights for the layers' output, `(N, T, H)`; None without attention."""
        return (None, None) if self.attention is None else self.attention(output, memory)

    def look(self, output: Tensor, context: Tensor | None, vectors: Tensor) -> Tensor:
        """The vectors from which scores are computed: of the layers' output, the contexts and the embeddings."""
        if self.wide:
            read = output if context is None else torch.cat([context, output], -1)
            return torch.cat([self.dropout(read), vectors], -1)
        if context is None or self.combine is None:
            return self.dropout(output)
        return self.dropout((context + self.combine(output)).tanh())

    def scores(self, looks: Tensor) -> Tensor:
        """Score every token except padding."""
        if isinstance(self.head, Tied):
            scored: Tensor = self.head(looks, self.embedding.weight)
            return scored
        scored = self.head(looks)
        return scored
