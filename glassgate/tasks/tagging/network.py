"""The network of tagging: embeddings of tokens and characters, recurrent layers, and scores of labels and intents."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, move
from glassgate.tasks.data.vocabulary import PADDING, Vocabulary
from glassgate.tasks.networks.encoder import drop_tokens, encoder, last_outputs
from glassgate.tasks.tagging.crf import CRF, best_paths, bio_penalties, marginals
from glassgate.tasks.tagging.options import TaggingOptions

LONGEST_WORD = 32
"""The maximum number of characters of a word. The middle of a longer word, such as a link, is removed."""


class Scores(NamedTuple):
    """The output of the network.

    Attributes:
        labels: the score of each label for each token, `(N, L, K)`
        intents: the score of each intent for each sequence, `(N, I)`; None without intents
    """

    labels: Tensor
    intents: Tensor | None


class Tagger(nn.Module):
    """Embeddings of `input_size` numbers, recurrent layers, and scores of the labels and intents.

    Args:
        first_singleton: tokens from this index on occur only once in training; `vocabulary_size` if there are none
        num_characters: the number of characters, including padding and unknown; 0 for no character network
        requires_bio: whether predicted paths must be valid BIO
    """

    transition_penalties: Tensor
    start_penalties: Tensor

    def __init__(
        self,
        options: TaggingOptions,
        vocabulary_size: int,
        input_size: int,
        label_names: Sequence[str],
        *,
        first_singleton: int,
        num_characters: int = 0,
        requires_bio: bool = False,
        num_intents: int = 0,
    ):
        super().__init__()
        size = options.hidden_size * (1 + options.bidirectional)
        self.first_singleton, self.singleton_dropout = first_singleton, options.singleton_dropout
        self.requires_bio = requires_bio
        self.embedding = nn.Embedding(vocabulary_size, input_size, padding_idx=PADDING)
        self.spelling = CharacterEncoder(options, num_characters) if num_characters else None
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, input_size + 2 * options.character_size * bool(num_characters))
        self.head = nn.Linear(size, len(label_names))
        self.crf = CRF(len(label_names)) if options.head == "crf" else None
        self.intent_head = nn.Linear(size, num_intents) if num_intents else None
        if requires_bio:
            start, transitions = bio_penalties(label_names)
            self.register_buffer("start_penalties", start, persistent=False)
            self.register_buffer("transition_penalties", transitions, persistent=False)

    def forward(self, batch: Batch) -> Scores:
        """Score the labels of each token and, if the network has them, the intents.

        The batch has `units`, `(N, L)`, and for a character network `characters`, `(N, L, W)`, of words of length W.
        """
        has_singletons = self.first_singleton < self.embedding.num_embeddings
        fraction = self.singleton_dropout if self.training and has_singletons else 0.0
        vectors = self.embedding(drop_tokens(batch, fraction, self.first_singleton))
        if self.spelling is not None:
            vectors = torch.cat([vectors, self.spelling(batch["characters"])], -1)
        output, _ = self.encoder(self.dropout(vectors), lengths=batch["lengths"])
        labels = self.head(self.dropout(output))
        if self.intent_head is None:
            return Scores(labels, None)
        pooled = output.masked_fill(batch["units"][..., None] == PADDING, -torch.inf).amax(1)
        return Scores(labels, self.intent_head(self.dropout(pooled)))

    def best(self, scores: Scores, lengths: Tensor) -> Tensor:
        """Return the most probable allowed path: the index of a label for each token, `(N, L)`."""
        if (chain := self.chain()) is None:
            return scores.labels.argmax(-1)
        return best_paths(scores.labels.float(), lengths, *chain)

    def probabilities(self, scores: Scores, lengths: Tensor) -> Tensor:
        """Return the marginal probability of each label of each token over all allowed paths, `(N, L, K)`."""
        if (chain := self.chain()) is None:
            return scores.labels.float().softmax(-1)
        return marginals(scores.labels.float(), lengths, *chain)

    def chain(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return scores of first labels, `(K,)`, transitions, `(K, K)`, and last labels, `(K,)`; None without any."""
        if self.crf is None and not self.requires_bio:
            return None
        zeros = self.head.weight.new_zeros(self.head.out_features, dtype=torch.float32)
        start, transitions, end = zeros, zeros.expand(len(zeros), -1), zeros
        if self.crf is not None:
            start, transitions, end = self.crf.start, self.crf.transitions, self.crf.end
        if self.requires_bio:
            start, transitions = start + self.start_penalties, transitions + self.transition_penalties
        return start, transitions, end


class CharacterEncoder(nn.Module):
    """Encodes each word as the last states of a bidirectional layer over its characters (Ling et al. 2015)."""

    def __init__(self, options: TaggingOptions, num_characters: int):
        super().__init__()
        self.embedding = nn.Embedding(num_characters, options.character_embedding_size, padding_idx=PADDING)
        layer_options = replace(options, hidden_size=options.character_size, num_layers=1, bidirectional=True)
        self.encoder = encoder(layer_options, options.character_embedding_size)

    def forward(self, characters: Tensor) -> Tensor:
        """Map padded characters, `(N, L, W)`, on the CPU, to vectors of words, `(N, L, 2 * character_size)`.

        Each distinct word is encoded once.
        """
        device = self.embedding.weight.device
        words, indices = characters.flatten(0, 1), None
        if not torch.compiler.is_compiling():  # an exported program cannot depend on the number of distinct words
            words, indices = torch.unique(words, dim=0, return_inverse=True)
        _, state = self.encoder(self.embedding(move(words, device)), lengths=(words != PADDING).sum(1))
        vectors = last_outputs(self.encoder, state)
        return (vectors if indices is None else vectors[move(indices, device)]).unflatten(0, characters.shape[:2])


class Spellings:
    """The indices of the characters of words in a vocabulary of characters, concatenated in one array.

    Example:
        >>> Spellings(["a", "no"], Vocabulary(["a", "n", "o"])).rows(np.array([1, 0])).tolist()
        [[3, 4], [2, 0]]
    """

    def __init__(self, words: Sequence[str], characters: Vocabulary):
        half = LONGEST_WORD // 2
        words = [word if len(word) <= LONGEST_WORD else word[:half] + word[-half:] for word in words]
        self.lengths = np.fromiter(map(len, words), np.int64, len(words))
        self.starts = np.cumsum(self.lengths) - self.lengths
        # `rows` also reads positions after the last word. The padding keeps them inside of the array.
        self.indices = np.pad(characters.encode("".join(words)).astype(np.int32), (0, LONGEST_WORD))

    def rows(self, word_indices: np.ndarray) -> np.ndarray:
        """Return the characters of the words with these indices, one row per word, padded to the longest word."""
        lengths = self.lengths[word_indices, None]
        offsets = np.arange(max(1, lengths.max(initial=0)))
        indices = self.indices[self.starts[word_indices, None] + offsets]
        return np.where(offsets < lengths, indices, PADDING).astype(np.int64)
