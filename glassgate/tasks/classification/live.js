// Classification: a label for a text or a series, and the tokens that decided it.
models.classification = (info, run) => {
  const memory = new Map();
  const text = info.tokens !== undefined;
  const tokenize = text && tokenizer(info.tokens);

  const pooled = (output, parts, count) => {
    const rows = rowsOf(output, count);
    const weighted = (weights) => rows[0].map((_, k) => rows.reduce((total, row, t) => total + weights[t] * row[k], 0));
    const last = () => finalOutputs(info.encoder, parts);
    const mean = () => weighted(rows.map(() => 1 / count));
    const max = () => rows.reduce((most, row) => most.map((value, k) => Math.max(value, row[k])));
    if (info.pooling === "attention") {
      const weights = softmax(linear(info.attention[1], linear(info.attention[0], output, count).map(Math.tanh), count));
      return { vector: weighted(weights), attention: weights };
    }
    return { vector: { last, mean, max, concat: () => [...last(), ...mean(), ...max()] }[info.pooling]() };
  };
  // `numbers` are the tokens of a text; series have none.
  const classify = (x, count, edits, numbers) => {
    const { output, parts } = run(info.encoder, x, count, { edits, memory });
    const { vector, attention } = pooled(output, parts, count);
    const scores = linear(info.head, vector, 1);
    return { parts, attention, chances: softmax(text ? addLinear(info.linear, numbers, scores) : addSeries(info.linear, x, count, scores)) };
  };
  const resultOf = (x, count, labels, edits, more, numbers) => {
    const { parts, attention, chances } = classify(x, count, edits, numbers);
    return { count, labels, parts, attention, answers: [{ step: null, names: info.labels, chances, chosen: argmax(chances) }], ...more };
  };

  const readText = (given, edits) => {
    const tokens = tokenize(given);
    const labels = tokens.map(({ text: token }) => token);
    if (!tokens.length) return { count: 0, tokens, labels, parts: {}, answers: [], unknown: [] };
    const numbers = tokens.map(({ number }) => number);
    const result = resultOf(embed(info.embedding, info.size, numbers), numbers.length, labels, edits, { tokens, unknown: unknownTokens(tokens) }, numbers);
    const decisive = (numbers.length > 80 ? [] : numbers).map((_, k) => {
      if (numbers.length === 1) return 0;
      const others = numbers.filter((_, n) => n !== k);
      const { chosen, chances } = result.answers[0];
      return Math.log(chances[chosen]) - Math.log(classify(embed(info.embedding, info.size, others), others.length, [], others).chances[chosen]);
    });
    return { ...result, decisive: edits.length ? [] : decisive };
  };
  const readSeries = (rows, edits) => {
    const x = Float32Array.from(rows.flatMap((row) => row.map((value, k) => (value - info.series[0][k]) / info.series[1][k])));
    return resultOf(x, rows.length, rows.map((row) => row.map((value) => fixed(value)).join(", ")), edits, { rows });
  };

  const weight = ({ attention, decisive }, k) => (attention ? attention[k] / Math.max(...attention) : decisive?.length ? decisive[k] / Math.max(0.05, ...decisive.map(Math.abs)) : 0);
  const base = text
    ? textModel({
        colour: (result, k) => shadeOf(weight(result, k)),
        titled: ({ attention, decisive }, k) => (attention ? say("live.attention", { percent: percent(attention[k]) }) : decisive?.length ? say("live.loses", { nats: fixed(decisive[k], 3) }) : ""),
        legend: ({ attention }) => attention
          ? [element("span", {}, say("live.by_attention")), element("b", { className: "p1" }, say("live.little")), element("b", { className: "p10" }, say("live.much"))]
          : [element("span", {}, say("live.by_loss")), element("b", { className: "n8" }, say("live.against_it")), element("b", { className: "p8" }, say("live.for_it"))],
        title: () => say("live.whole_text_is"),
      })
    : seriesModel({ title: () => say("live.whole_series_is") });
  return {
    ...base,
    task: "classification",
    lede: text ? say("lede.classification") : say("lede.classification_of_series"),
    encoder: info.encoder,
    read: text ? readText : readSeries,
  };
};
