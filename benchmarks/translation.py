"""`python -m benchmarks.translation`: beam search over 1,000 sentences, compared with plain torch.nn.

The other program is written in the usual way: `nn.LSTM` called for one step at a time, the sources repeated for each
beam, and a batch that continues until its last sentence is complete. Both programs have the same weights and must find
the same translations. Runs are interleaved. The figure is the median ratio of processor times, on which other processes
have less influence than on elapsed times.
"""

import argparse
import copy
import statistics

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from experiments.common.summaries import ratios
from experiments.common.timing import interleaved
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.pieces import evaluation_batches
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.translation import Search, Translation
from glassgate.tasks.translation.network import Translator
from glassgate.tasks.translation.search import END, Hypothesis, search
from results.plain import with_plain_layers


class Plain(nn.Module):
    """The same model in plain torch.nn, with general attention, without input feeding, with or without wide output."""

    def __init__(self, ours: Translator):
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
        packed = pack_padded_sequence(self.source(source), lengths, batch_first=True, enforce_sorted=False)
        output, last = self.encoder(packed)
        states, _ = pad_packed_sequence(output, batch_first=True)
        first = []
        for name, state in zip("hc", last, strict=True):
            both = [torch.cat([*pair], -1) for pair in state.chunk(self.encoder.num_layers)]
            new = torch.stack([linear(each) for linear, each in zip(self.bridge[name], both, strict=True)])
            first.append(new.tanh() if name == "h" else new)
        return states, (first[0], first[1])

    @torch.inference_mode()
    def search(self, source: Tensor, lengths: Tensor, limits: list[int], how: Search) -> list[list[Hypothesis]]:
        """Beam search over a batch, by the rules of `glassgate.tasks.translation.search`."""
        rows, beam = len(source), how.beam
        states, (h, c) = self.encode(source, lengths)
        keys = self.key(states) / self.key.out_features**0.5
        states, keys = (each.repeat_interleave(beam, 0) for each in (states, keys))
        outside = (torch.arange(states.shape[1]) >= lengths[:, None]).repeat_interleave(beam, 0)[:, None]
        h, c = h.repeat_interleave(beam, 1), c.repeat_interleave(beam, 1)
        units = torch.full((rows * beam, 1), PADDING)
        totals = torch.full((rows, beam), -torch.inf)
        totals[:, 0] = 0
        found: list[list[Hypothesis]] = [[] for _ in range(rows)]
        last, room = torch.tensor(limits), torch.full((rows,), beam)
        for length in range(1, max(limits) + 1):
            vector = self.target(units[:, -1:])
            output, (h, c) = self.decoder(vector, (h, c))
            weights = (output @ keys.transpose(1, 2)).masked_fill(outside, -torch.inf).softmax(-1)
            look = torch.cat([weights @ states, output], -1)
            look = torch.cat([look, vector], -1) if self.combine is None else self.combine(look).tanh()
            logs = self.head(look[:, 0]).log_softmax(-1).view(rows, beam, -1)
            logs[..., 0] = -torch.inf
            known = logs.shape[-1]
            must = last == length
            if must.any():
                logs[must] = logs[must].where(torch.arange(known) == END - UNKNOWN, -torch.inf)
            best, places = (totals[..., None] + logs).view(rows, -1).topk(2 * beam)
            beams, said = places // known, places % known + UNKNOWN
            ended = (said == END) & best.isfinite() & (torch.arange(2 * beam) < room[:, None])
            for row, place in ended.nonzero().tolist():
                history = units[row * beam + beams[row, place], 1:].tolist()
                found[row].append(Hypothesis(tuple(history), float(best[row, place]) / how.penalty(length)))
            room = (room - ended.sum(1)) * ~must
            if not room.any():
                break
            totals, kept = best.masked_fill(said == END, -torch.inf).topk(beam)
            totals = totals.masked_fill(torch.arange(beam) >= room[:, None], -torch.inf)
            flat = (beams.gather(1, kept) + beam * torch.arange(rows)[:, None]).flatten()
            units = torch.cat([units[flat], said.gather(1, kept).view(-1, 1)], 1)
            h, c = h[:, flat], c[:, flat]
        return [sorted(each, key=lambda one: -one.score)[:beam] for each in found]


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return an `nn.Linear` with the weights of a linear layer of the task."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return layer


def batches(task: Translation, pairs: list[Pair], at_once: int | None) -> list[tuple[Tensor, Tensor, list[int]]]:
    """Return batches of a given size, or those of `task.predict`, each with the limit of its translations' lengths."""
    encoded = task.encoded(pairs)
    made = []
    sizes = [len(each["source"]) for each in encoded]
    for pieces in evaluation_batches(sizes, at_once) if at_once else task.batching().evaluation(sizes):
        rows = [torch.from_numpy(encoded[piece.index]["source"]) for piece in pieces]
        lengths = torch.tensor([len(row) for row in rows])
        limits = [10 + int(2 * task.fitted["ratio"] * len(row)) for row in rows]
        made.append((nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING), lengths, limits))
    return made


def main() -> None:
    """Measure the sizes that the command line selects."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.translation", description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a trained translation with LSTM, general attention, no input feeding")
    parser.add_argument("file", help="pairs or sentences")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--at-once", type=int, help="sentences per batch (default: as in `glassgate translate`)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task = Translation.load(options.run)
    task.network.eval()
    known = task.options.cell, task.options.attention, task.options.input_feeding, task.options.tied
    if known != ("lstm", "general", False, False):
        parser.error("expected a run with --cell lstm, --attention general and neither --input-feeding nor --tied")
    pairs = list(task.read(options.file, labelled=False))[-options.sentences :]
    how, plain, made = (
        Search(options.beam, task.options.length_penalty),
        Plain(task.network).eval(),
        batches(task, pairs, options.at_once),
    )

    @torch.inference_mode()
    def ours() -> list[list[Hypothesis]]:
        decoder = task.network.decoder
        return [each for s, n, limits in made for each in search(decoder, *task.network.encode(s, n), limits, how)]

    def theirs() -> list[list[Hypothesis]]:
        return [each for s, n, limits in made for each in plain.search(s, n, limits, how)]

    swapped = with_plain_layers(copy.deepcopy(task.network)).eval()

    @torch.inference_mode()
    def ours_on_theirs() -> list[list[Hypothesis]]:
        return [each for s, n, limits in made for each in search(swapped.decoder, *swapped.encode(s, n), limits, how)]

    sides = {"ours": ours, "plain torch.nn": theirs, "our search on layers of torch.nn": ours_on_theirs}
    first = {name: work() for name, work in sides.items()}
    print(f"{len(pairs)} sentences, beam {options.beam}, {options.threads} threads, medians of {options.rounds} rounds")
    times = dict(zip(sides, interleaved(list(sides.values()), options.rounds), strict=True))
    for name in sides:
        slower = sorted(ratios(times[name], times["ours"]))
        pairs_of = list(zip(first["ours"], first[name], strict=True))
        same = sum(a[0].tokens == b[0].tokens for a, b in pairs_of)
        error = max(abs(a[0].score - b[0].score) for a, b in pairs_of)
        print(
            f"{name:34}{statistics.median(times[name]):6.2f} s, {statistics.median(slower):.2f} times ours "
            f"({slower[0]:.2f} to {slower[-1]:.2f}); {same} translations equal, scores within {error:.0e}"
        )


if __name__ == "__main__":
    main()
