"""`python -m benchmarks translation` compares the beam search of translations with one in plain torch.nn.

The other program is written in the usual way. It calls `nn.LSTM` for one step at a time, repeats the sources for each
beam, and continues a batch until its last sentence is complete. Both programs have the same weights and should find the
same translations. They run in turn. The result is the median ratio of processor times, on which other processes have
less influence than on elapsed times.
"""

import argparse
import copy
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from experiments.common.summaries import ratios
from experiments.common.timing import interleaved
from experiments.quality.plain import with_plain_layers
from glassgate.tasks.data.batching import evaluation_batches
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.translation import Search, Translation
from glassgate.tasks.translation.search import END, Hypothesis, search


class PlainTranslator(nn.Module):
    """A translation model in plain torch.nn, with general attention and without input feeding.

    Args:
        ours: the `Translator` with the weights.
    """

    def __init__(self, ours: Any):
        super().__init__()
        encoder, layer = ours.encoder, ours.decoder.layer
        sizes = (encoder.input_size, encoder.hidden_size, encoder.num_layers)
        self.encoder = nn.LSTM(*sizes, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(layer.input_size, layer.hidden_size, layer.num_layers, batch_first=True)
        self.encoder.load_state_dict(encoder.state_dict())
        self.decoder.load_state_dict(layer.state_dict())
        self.source, self.target = ours.embedding, ours.decoder.embedding
        self.bridge = ours.bridge.layers
        context, state = ours.decoder.attention.value, ours.decoder.combine
        self.combine = None if state is None else _linear(torch.cat([context.weight, state.weight], 1), state.bias)
        self.key = _linear(ours.decoder.attention.key.weight, None)
        self.head = _linear(ours.decoder.head.weight, ours.decoder.head.bias)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the states of the encoder, and the initial states of the decoder."""
        packed = pack_padded_sequence(self.source(source), lengths, batch_first=True, enforce_sorted=False)
        output, final = self.encoder(packed)
        states, _ = pad_packed_sequence(output, batch_first=True)
        initial = []
        for name, state in zip("hc", final, strict=True):
            both = [torch.cat([*pair], -1) for pair in state.chunk(self.encoder.num_layers)]
            new = torch.stack([linear(state) for linear, state in zip(self.bridge[name], both, strict=True)])
            initial.append(new.tanh() if name == "h" else new)
        return states, (initial[0], initial[1])

    @torch.inference_mode()
    def search(self, source: Tensor, lengths: Tensor, limits: list[int], settings: Search) -> list[list[Hypothesis]]:
        """Search a batch with the rules of `glassgate.tasks.translation.search`.

        Args:
            source, lengths: token IDs (N, L), and the number of tokens of each sentence.
            limits: the maximum number of tokens of each translation.
            settings: the width of the beam and the length penalty.
        """
        rows, beam = len(source), settings.beam
        states, (h, c) = self.encode(source, lengths)
        keys = self.key(states) / self.key.out_features**0.5
        states, keys = states.repeat_interleave(beam, 0), keys.repeat_interleave(beam, 0)
        is_padding = (torch.arange(states.shape[1]) >= lengths[:, None]).repeat_interleave(beam, 0)[:, None]
        h, c = h.repeat_interleave(beam, 1), c.repeat_interleave(beam, 1)
        tokens = torch.full((rows * beam, 1), PADDING)
        scores = torch.full((rows, beam), -torch.inf)
        scores[:, 0] = 0
        found: list[list[Hypothesis]] = [[] for _ in range(rows)]
        limit, open_beams = torch.tensor(limits), torch.full((rows,), beam)
        for length in range(1, max(limits) + 1):
            vector = self.target(tokens[:, -1:])
            output, (h, c) = self.decoder(vector, (h, c))
            weights = (output @ keys.transpose(1, 2)).masked_fill(is_padding, -torch.inf).softmax(-1)
            features = torch.cat([weights @ states, output], -1)
            features = torch.cat([features, vector], -1) if self.combine is None else self.combine(features).tanh()
            logs = self.head(features[:, 0]).log_softmax(-1).view(rows, beam, -1)
            logs[..., 0] = -torch.inf
            vocabulary_size = logs.shape[-1]
            must_end = limit == length
            if must_end.any():
                logs[must_end] = logs[must_end].where(torch.arange(vocabulary_size) == END - UNKNOWN, -torch.inf)
            best, places = (scores[..., None] + logs).view(rows, -1).topk(2 * beam)
            beams, candidates = places // vocabulary_size, places % vocabulary_size + UNKNOWN
            ended = (candidates == END) & best.isfinite() & (torch.arange(2 * beam) < open_beams[:, None])
            for row, place in ended.nonzero().tolist():
                history = tokens[row * beam + beams[row, place], 1:].tolist()
                found[row].append(Hypothesis(tuple(history), float(best[row, place]) / settings.penalty(length)))
            open_beams = (open_beams - ended.sum(1)) * ~must_end
            if not open_beams.any():
                break
            scores, kept = best.masked_fill(candidates == END, -torch.inf).topk(beam)
            scores = scores.masked_fill(torch.arange(beam) >= open_beams[:, None], -torch.inf)
            flat = (beams.gather(1, kept) + beam * torch.arange(rows)[:, None]).flatten()
            tokens = torch.cat([tokens[flat], candidates.gather(1, kept).view(-1, 1)], 1)
            h, c = h[:, flat], c[:, flat]
        return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:beam] for hypotheses in found]


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return an `nn.Linear` with the weights of a linear layer of the task."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return layer


def batches(task: Translation, pairs: list[Pair], at_once: int | None) -> list[tuple[Tensor, Tensor, list[int]]]:
    """Return batches of token IDs, lengths, and the maximum numbers of tokens of the translations.

    Args:
        task: the trained task.
        pairs: the sentences.
        at_once: the number of sentences per batch; None for the batches of `task.predict`.
    """
    encoded = task.encoded(pairs)
    result = []
    sizes = [len(example["source"]) for example in encoded]
    for pieces in evaluation_batches(sizes, at_once) if at_once else task.batching().evaluation(sizes):
        rows = [torch.from_numpy(encoded[piece.index]["source"]) for piece in pieces]
        lengths = torch.tensor([len(row) for row in rows])
        limits = [10 + int(2 * task.fitted["ratio"] * len(row)) for row in rows]
        result.append((nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING), lengths, limits))
    return result


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    parser.add_argument("run", help="folder of a trained translation with LSTM, general attention, no input feeding")
    parser.add_argument("file", help="pairs or sentences")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--at-once", type=int, help="sentences per batch (default: as in `glassgate translate`)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)


def run(options: argparse.Namespace) -> None:
    """Run the searches, and print times and differences."""
    torch.set_num_threads(options.threads)
    task = Translation.load(options.run)
    task.network.eval()
    model_options = task.options.cell, task.options.attention, task.options.input_feeding, task.options.tied
    if model_options != ("lstm", "general", False, False):
        sys.exit("expected a run with --cell lstm, --attention general and neither --input-feeding nor --tied")
    pairs = list(task.read(options.file, labelled=False))[-options.sentences :]
    settings, plain, examples = (
        Search(options.beam, task.options.length_penalty),
        PlainTranslator(task.network).eval(),
        batches(task, pairs, options.at_once),
    )

    def our_search(network: Any) -> list[list[Hypothesis]]:
        with torch.inference_mode():
            translations = []
            for sources, sizes, limits in examples:
                memory, state = network.encode(sources, sizes)
                translations += search(network.decoder, memory, state, limits, settings)
            return translations

    swapped = with_plain_layers(copy.deepcopy(task.network)).eval()
    programs: dict[str, Callable[[], list[list[Hypothesis]]]] = {
        "ours": partial(our_search, task.network),
        "plain torch.nn": lambda: [found for batch in examples for found in plain.search(*batch, settings)],
        "our search on layers of torch.nn": partial(our_search, swapped),
    }
    translations = {name: run() for name, run in programs.items()}
    print(f"{len(pairs)} sentences, beam {options.beam}, {options.threads} threads, medians of {options.rounds} rounds")
    times = dict(zip(programs, interleaved(list(programs.values()), options.rounds), strict=True))
    for name in programs:
        relative = sorted(ratios(times[name], times["ours"]))
        both = list(zip(translations["ours"], translations[name], strict=True))
        same = sum(a[0].tokens == b[0].tokens for a, b in both)
        error = max(abs(a[0].score - b[0].score) for a, b in both)
        print(
            f"{name:34}{statistics.median(times[name]):6.2f} s, {statistics.median(relative):.2f} times ours "
            f"({relative[0]:.2f} to {relative[-1]:.2f}); {same} translations equal, scores within {error:.0e}"
        )
