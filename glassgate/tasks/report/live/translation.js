// Translation: the source is read, the target is written token by token, each time the most probable one.
models.translation = (info, run) => {
  const memory = new Map();
  const tokenize = tokenizer(info.tokens);
  const END = FIRST;

  // The states of the encoder as the decoder attends to them.
  const remembered = (output, count) => {
    const { kind, value, key, directions } = info.attention;
    const rows = rowsOf(output, count);
    const values = value ? rowsOf(linear(value, output, count), count) : rows;
    const halves = (row) => rowsOf(row, directions).reduce((total, half) => total.map((each, k) => each + half[k]));
    let keys = kind === "dot" ? rows.map(halves) : rowsOf(linear(key, output, count), count);
    if (kind !== "additive") keys = keys.map((row) => row.map((each) => each / Math.sqrt(row.length)));
    return { values, keys };
  };
  const attended = (query, { values, keys }) => {
    const asked = info.attention.kind === "additive" ? linear(info.attention.query, query, 1) : query;
    const score = (row) => (info.attention.kind === "additive" ? linear(info.attention.score, row.map((each, k) => Math.tanh(each + asked[k])), 1)[0] : sum([...row].map((each, k) => each * asked[k])));
    const weights = softmax(Float32Array.from(keys, score));
    return { weights, context: values[0].map((_, k) => values.reduce((total, row, t) => total + weights[t] * row[k], 0)) };
  };

  // The first states of the decoder, layer by layer, from the last ones of the encoder.
  const bridged = (parts) =>
    Object.fromEntries(info.decoder.levels.map(({ directions: [{ label, states }] }, layer) => {
      const below = info.encoder.levels[layer].directions;
      return [label, Object.fromEntries(Object.entries(states).map(([name, units], k) => {
        if (!info.bridge[name]) return [name, new Float32Array(units)];
        const made = linear(info.bridge[name][layer], concatenated(below.map((direction) => parts[direction.label].last[name])), 1);
        return [name, k ? made : made.map(Math.tanh)];
      }))];
    }));

  const looked = (output, context, vector) => {
    if (info.wide) return concatenated([...(context ? [context] : []), output, vector]);
    if (!context || !info.combine) return output;
    const combined = linear(info.combine, output, 1);
    return context.map((value, k) => Math.tanh(value + combined[k]));
  };

  const write = (output, parts, count) => {
    const kept = info.attention && remembered(output, count);
    const limit = 10 + Math.trunc(2 * info.ratio * count);
    let start = bridged(parts);
    let look = new Float32Array(info.look);
    let before = PADDING;
    const written = [];
    while (written.length < limit) {
      const vector = embedded(info.target_embedding, info.size, [before]);
      const x = info.feeding ? concatenated([vector, look.subarray(0, info.fed)]) : vector;
      const made = run(info.decoder, x, 1, { start });
      start = Object.fromEntries(Object.entries(made.parts).map(([label, { last }]) => [label, last]));
      const { context, weights } = kept ? attended(made.output, kept) : {};
      look = looked(made.output, context, vector);
      const chances = softmax(linear(info.head, info.narrow ? linear(info.narrow, look, 1) : look, 1));
      const number = argmax(chances.map((chance, k) => (k ? chance : 0))) + UNKNOWN;
      written.push({ number, chances, weights });
      before = number;
      if (number === END) break;
    }
    return written;
  };

  const read = (text, edits) => {
    const tokens = tokenize(text);
    const count = tokens.length;
    const labels = tokens.map(({ text: token }) => token);
    if (!count) return { count, tokens, labels, parts: {}, answers: [], unknown: [], written: [] };
    const numbers = tokens.map(({ number }) => number);
    const { output, parts } = run(info.encoder, embedded(info.embedding, info.size, numbers), count, { edits, memory });
    const written = write(output, parts, count);
    const answers = written.map(({ number, chances, weights }) => ({ step: null, names: info.names, chances, chosen: number - UNKNOWN, weights }));
    return { count, tokens, labels, parts, answers, unknown: unknownTokens(tokens), written };
  };

  const spoken = ({ answers }) => {
    const words = answers.filter(({ chosen }) => chosen !== END - UNKNOWN).map(({ chosen }) => info.names[chosen]);
    if (info.target_unit === "subword") return words.join("").replaceAll("▁", " ").trim();
    return words.join(info.target_unit === "character" ? "" : " ");
  };
  let chosen = 0;
  const base = textModel({
    colour: ({ answers }, k) => (answers[chosen]?.weights ? shadeOf(answers[chosen].weights[k]) : ""),
    titled: ({ answers }, k) => (answers[chosen]?.weights ? `attention ${percent(answers[chosen].weights[k])}` : ""),
    legend: () => (info.attention ? [element("span", {}, "Shaded by the attention of the chosen token of the translation.")] : []),
  });
  return {
    ...base,
    task: "translation",
    lede: "Type another text: the network translates it as you type, each time with its most probable token. Point at a token of the translation to see its attention.",
    encoder: info.encoder,
    read,
    answers(place, plain, shown) {
      chosen = clamp(chosen, 0, Math.max(0, shown.answers.length - 1));
      const answer = shown.answers[chosen];
      if (!answer) return place.replaceChildren();
      const choose = (k) => {
        if (k === chosen) return;
        chosen = k;
        this.again?.();
      };
      const buttons = shown.answers.map((each, k) => element("button", { type: "button", className: k === chosen ? "primary" : "", ariaPressed: String(k === chosen), onclick: () => choose(k), onpointerenter: () => choose(k) },
        each.chosen === END - UNKNOWN ? "end" : info.names[each.chosen]));
      const before = plain === shown ? "" : element("p", { className: "live-note" }, `Without the changes: ${spoken(plain)}`);
      place.replaceChildren(element("p", { className: "live-written" }, spoken(shown)), before, element("div", { className: "live-controls live-tokens" }, ...buttons), element("p", { className: "live-note" }, `Token ${chosen + 1} of the translation:`), barsOf(answer, plain.answers[chosen] && plain !== shown ? plain.answers[chosen] : answer));
    },
    compare: (plain, shown) => {
      const [was, now] = [spoken(plain), spoken(shown)];
      return was === now ? `the translation stays “${was}”.` : `the translation changes from “${was}” to “${now}”.`;
    },
  };
};
