"""The network of tagging: embeddings of tokens and characters, recurrent layers, scores of labels and intents."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, draw_for, move
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.networks.encoder import encoder, last_outputs
from glassgate.tasks.tagging.crf import CRF, best_paths, marginals, penalties
from glassgate.tasks.tagging.options import TaggingOptions


class Scores(NamedTuple):
    """The output: scores of the labels of each token, `(N, L, K)`, and scores of intents, `(N, intents)`, if any."""

    labels: Tensor
    intents: Tensor | None


class Tagger(nn.Module):
    """Embeddings, recurrent layers, and scores of the labels and intents.

    Args:
        options: sizes, cell and head
        units: the size of the vocabulary, including padding and unknown
        input_size: the size of the embedding of a token
        labels: the labels
        singletons: the index of the first token that occurs once in training; `units` if there is none
        characters: the number of characters, including padding and unknown; 0 for no character network
        valid: whether predicted paths must be valid BIO
        intents: the number of intents
    """

    transition_penalties: Tensor
    start_penalties: Tensor

    def __init__(
        self,
        options: TaggingOptions,
        units: int,
        input_size: int,
        labels: Sequence[str],
        *,
        singletons: int,
        characters: int = 0,
        valid: bool = False,
        intents: int = 0,
    ):
        super().__init__()
        size = options.hidden_size * (1 + options.bidirectional)
        self.singletons, self.singleton_dropout, self.valid = singletons, options.singleton_dropout, valid
        self.embedding = nn.Embedding(units, input_size, padding_idx=PADDING)
        self.spelling = Spelling(options, characters) if characters else None
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, input_size + 2 * options.character_size * bool(characters))
        self.head = nn.Linear(size, len(labels))
        self.crf = CRF(len(labels)) if options.head == "crf" else None
        self.intent_head = nn.Linear(size, intents) if intents else None
        if valid:
            start, transitions = penalties(labels)
            self.register_buffer("start_penalties", start, persistent=False)
            self.register_buffer("transition_penalties", transitions, persistent=False)

    def forward(self, batch: Batch) -> Scores:
        """From `units`, `(N, L)`, `characters`, `(N, L, W)`, if the network reads them, and `lengths`, `(N,)`."""
        vectors = self.embedding(self._with_unknown(batch))
        if self.spelling is not None:
            vectors = torch.cat([vectors, self.spelling(batch["characters"])], -1)
        output, _ = self.encoder(self.dropout(vectors), lengths=batch["lengths"])
        labels = self.head(self.dropout(output))
        if self.intent_head is None:
            return Scores(labels, None)
        pooled = output.masked_fill(batch["units"][..., None] == PADDING, -torch.inf).amax(1)
        return Scores(labels, self.intent_head(self.dropout(pooled)))

    def best(self, scores: Scores, lengths: Tensor) -> Tensor:
        """Return the index of the label of each token, `(N, L)`: the best path of allowed transitions."""
        if (chain := self.chain()) is None:
            return scores.labels.argmax(-1)
        return best_paths(scores.labels.float(), lengths, *chain)

    def probabilities(self, scores: Scores, lengths: Tensor) -> Tensor:
        """Return the probability of each label of each token, `(N, L, K)`, over all allowed paths."""
        if (chain := self.chain()) is None:
            return scores.labels.float().softmax(-1)
        return marginals(scores.labels.float(), lengths, *chain)

    def chain(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the scores of the first label, of transitions and of the last label; None for independent labels."""
        if self.crf is None and not self.valid:
            return None
        zeros = self.head.weight.new_zeros(self.head.out_features, dtype=torch.float32)
        start, transitions, end = zeros, zeros.expand(len(zeros), -1), zeros
        if self.crf is not None:
            start, transitions, end = self.crf.start, self.crf.transitions, self.crf.end
        if self.valid:
            start, transitions = start + self.start_penalties, transitions + self.transition_penalties
        return start, transitions, end

    def _with_unknown(self, batch: Batch) -> Tensor:
        """Replace some tokens that occur once by the unknown token in training, so that its embedding is trained."""
        units = batch["units"]
        if not (self.training and self.singleton_dropout and self.singletons < self.embedding.num_embeddings):
            return units
        drawn = draw_for(batch, lambda shape: torch.rand(shape, device=units.device))
        return units.masked_fill((units >= self.singletons) & (drawn < self.singleton_dropout), UNKNOWN)


class Spelling(nn.Module):
    """Encodes the characters of each word: the last states of a bidirectional layer (Ling et al. 2015).

    Args:
        options: sizes and cell
        characters: the number of characters, including padding and unknown
    """

    def __init__(self, options: TaggingOptions, characters: int):
        super().__init__()
        self.embedding = nn.Embedding(characters, options.character_embedding_size, padding_idx=PADDING)
        layers = replace(options, hidden_size=options.character_size, num_layers=1, bidirectional=True)
        self.encoder = encoder(layers, options.character_embedding_size)

    def forward(self, characters: Tensor) -> Tensor:
        """From `(N, L, W)`, on the CPU, to `(N, L, 2 * character_size)`; each distinct word is read once."""
        device = self.embedding.weight.device
        words, places = characters.flatten(0, 1), None
        if not torch.compiler.is_compiling():  # the number of distinct words is not known in an exported program
            words, places = torch.unique(words, dim=0, return_inverse=True)
        _, state = self.encoder(self.embedding(move(words, device)), lengths=(words != PADDING).sum(1))
        vectors = last_outputs(self.encoder, state)
        return (vectors if places is None else vectors[move(places, device)]).unflatten(0, characters.shape[:2])
