// Translation: the source is read, the target is written token by token by beam search, as `glassgate predict` does.
models.translation = (info, run) => {
  const memory = new Map();
  const tokenize = tokenizer(info.tokens);
  const END = FIRST;

  // The values and the keys of the encoder's states, to which the decoder attends.
  const valuesAndKeys = (output, count) => {
    const { kind, value, key, directions } = info.attention;
    const rows = rowsOf(output, count);
    const values = value ? rowsOf(linear(value, output, count), count) : rows;
    const summedDirections = (row) => rowsOf(row, directions).reduce((total, half) => total.map((each, k) => each + half[k]));
    let keys = kind === "dot" ? rows.map(summedDirections) : rowsOf(linear(key, output, count), count);
    if (kind !== "additive") keys = keys.map((row) => row.map((each) => each / Math.sqrt(row.length)));
    return { values, keys };
  };
  const attend = (query, { values, keys }) => {
    const asked = info.attention.kind === "additive" ? linear(info.attention.query, query, 1) : query;
    const score = (row) => (info.attention.kind === "additive" ? linear(info.attention.score, row.map((each, k) => Math.tanh(each + asked[k])), 1)[0] : sum([...row].map((each, k) => each * asked[k])));
    const weights = softmax(Float32Array.from(keys, score));
    return { weights, context: values[0].map((_, k) => values.reduce((total, row, t) => total + weights[t] * row[k], 0)) };
  };

  // The initial states of each decoder layer, computed from the last states of the encoder layer.
  const initialStates = (parts) =>
    Object.fromEntries(info.decoder.levels.map(({ directions: [{ label, states }] }, layer) => {
      const below = info.encoder.levels[layer].directions;
      return [label, Object.fromEntries(Object.entries(states).map(([name, units], k) => {
        if (!info.bridge[name]) return [name, new Float32Array(units)];
        const state = linear(info.bridge[name][layer], concatenate(below.map((direction) => parts[direction.label].last[name])), 1);
        return [name, k ? state : state.map(Math.tanh)];
      }))];
    }));

  const readoutOf = (output, context, vector) => {
    if (info.wide) return concatenate([...(context ? [context] : []), output, vector]);
    if (!context || !info.combine) return output;
    const combined = linear(info.combine, output, 1);
    return context.map((value, k) => Math.tanh(value + combined[k]));
  };

  // One more step of a beam: the probabilities of its next token, and the states and the readout after the step.
  const advance = ({ start, readout, before, path }, sourceStates, edits) => {
    const vector = embed(info.target_embedding, info.size, [before]);
    const x = info.input_feeding ? concatenate([vector, readout.subarray(0, info.feedback_size)]) : vector;
    const { output, parts } = run(info.decoder, x, 1, { start, edits });
    const { context, weights } = sourceStates ? attend(output, sourceStates) : {};
    const next = readoutOf(output, context, vector);
    const chances = softmax(linear(info.head, info.projection ? linear(info.projection, next, 1) : next, 1));
    const states = Object.fromEntries(Object.entries(parts).map(([label, { last }]) => [label, last]));
    return { start: states, readout: next, path, chances, weights, parts, before };
  };

  // Beam search, as the function `search` of `glassgate.tasks.translation`; returns the best translation, step by step.
  const write = (output, parts, count, edits) => {
    const sourceStates = info.attention && valuesAndKeys(output, count);
    const limit = 10 + Math.trunc(2 * info.ratio * count);
    const penalty = (length) => ((5 + length) / 6) ** info.penalty;
    let beams = [{ start: initialStates(parts), readout: new Float32Array(info.readout_size), before: PADDING, path: null, total: 0 }];
    let best = null;
    let room = width;
    for (let length = 1; length <= limit && room; length++) {
      const candidates = beams.flatMap((beam) => {
        const made = advance(beam, sourceStates, edits);
        const known = made.chances.map((chance, k) => (k ? chance : 0));
        const likely = length === limit ? [END - UNKNOWN] : largest(known, 2 * width);
        return likely.map((k) => ({ made, number: k + UNKNOWN, total: beam.total + Math.log(made.chances[k]) }));
      });
      const likely = candidates.sort((a, b) => b.total - a.total).slice(0, 2 * width);
      const ended = likely.slice(0, room).filter(({ number }) => number === END);
      for (const end of ended) if (!best || end.total / penalty(length) > best.score) best = { ...end, score: end.total / penalty(length) };
      room -= ended.length;
      beams = likely.filter(({ number }) => number !== END).slice(0, room)
        .map(({ made, number, total }) => ({ start: made.start, readout: made.readout, before: number, path: { made, number }, total }));
    }
    const written = [];
    for (let at = best; at; at = at.made.path) written.unshift({ ...at.made, number: at.number });
    return written;
  };

  // The values of the decoder at each step of a translation, concatenated as if one run had computed them.
  const joinedParts = (written) =>
    Object.fromEntries(Object.entries(written[0].parts).map(([label, first]) => {
      const each = written.map(({ parts }) => parts[label]);
      const values = Object.fromEntries(Object.keys(first.values).map((name) => [name, concatenate(each.map((part) => part.values[name]))]));
      return [label, { ...first, values, x: concatenate(each.map(({ x }) => x)), last: each.at(-1).last }];
    }));

  const read = (text, edits) => {
    const tokens = tokenize(text);
    const count = tokens.length;
    if (!count) return { ...tokenised(tokens), decoded: [] };
    const { output, parts } = run(info.encoder, embed(info.embedding, info.size, numbersOf(tokens)), count, { edits, memory });
    const written = write(output, parts, count, edits);
    const answers = written.map(({ number, chances, weights }) => ({ step: null, names: info.names, chances, chosen: number - UNKNOWN, weights }));
    const decoded = written.map(({ before }) => (before === PADDING ? "▸" : info.names[before - UNKNOWN]));
    return { ...tokenised(tokens), decoded, parts: { ...parts, ...joinedParts(written) }, answers };
  };

  const textOf = ({ answers }) => {
    const words = answers.filter(({ chosen }) => chosen !== END - UNKNOWN).map(({ chosen }) => info.names[chosen]);
    if (info.target_unit === "subword") return words.join("").replaceAll("▁", " ").trim();
    return words.join(info.target_unit === "character" ? "" : " ");
  };
  let chosen = 0;
  let width = info.beam;
  const beam = (container, model, listeners) => {
    const choice = element("select", { onchange: () => { width = Number(choice.value); listeners.typed(); } },
      ...[...new Set([1, 2, 5, 10, info.beam])].sort((a, b) => a - b).map((each) => new Option(each, each, false, each === width)));
    container.append(element("div", { className: "live-controls" }, element("label", {}, say("live.beam"), " ", choice), element("span", { className: "live-note" }, say("live.beam_note"))));
  };
  const base = textModel({
    colour: ({ answers }, k) => (answers[chosen]?.weights ? shadeOf(answers[chosen].weights[k], "gate") : ""),
    titled: ({ answers }, k) => (answers[chosen]?.weights ? say("live.attention", { percent: percent(answers[chosen].weights[k]) }) : ""),
    legend: () => (info.attention ? [element("span", {}, say("live.by_attention_of_token"))] : []),
    extra: beam,
  });
  return {
    ...base,
    task: "translation",
    lede: say("lede.translation"),
    encoder: info.encoder,
    decoder: info.decoder,
    read,
    // The cursor is at a step of the decoder.
    decoding: (step) => (chosen = step),
    answers(container, plain, shown) {
      chosen = clamp(chosen, 0, Math.max(0, shown.answers.length - 1));
      const answer = shown.answers[chosen];
      if (!answer) return container.replaceChildren();
      const choose = (k) => {
        if (k === chosen) return;
        chosen = k;
        this.again?.();
      };
      const buttons = shown.answers.map((each, k) => element("button", { type: "button", className: k === chosen ? "primary" : "", ariaPressed: String(k === chosen), onclick: () => choose(k), onpointerenter: () => choose(k) },
        each.chosen === END - UNKNOWN ? say("live.end") : info.names[each.chosen]));
      const before = plain === shown ? "" : element("p", { className: "live-note" }, say("live.translation_before", { translation: textOf(plain) }));
      container.replaceChildren(element("p", { className: "live-written" }, textOf(shown)), before, element("div", { className: "live-controls live-tokens" }, ...buttons), element("p", { className: "live-note" }, say("live.token", { number: chosen + 1 })), barsOf(answer, plain.answers[chosen] && plain !== shown ? plain.answers[chosen] : answer));
    },
    compare: (plain, shown) => {
      const [was, now] = [textOf(plain), textOf(shown)];
      return was === now ? say("change.same_translation", { translation: was }) : say("change.translation", { from: was, to: now });
    },
  };
};
