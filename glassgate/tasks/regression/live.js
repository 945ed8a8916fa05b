// Regression: numbers for a text or a series.
models.regression = (info, run) => {
  const memory = new Map();
  const text = info.tokens !== undefined;
  const tokenize = text && tokenizer(info.tokens);
  // `tokens` are the numbers of the tokens of a text; series have none.
  const predict = (x, count, edits, more, tokens) => {
    const { parts } = run(info.encoder, x, count, { edits, memory });
    const outputs = linear(info.head, finalOutputs(info.encoder, parts), 1);
    const raw = text ? addLinear(info.linear, tokens, outputs) : addSeries(info.linear, x, count, outputs);
    return { count, parts, answers: [], names: info.names, numbers: [...raw].map((value, k) => value * info.deviation[k] + info.mean[k]), ...more };
  };
  const readText = (given, edits) => {
    const tokens = tokenize(given);
    const labels = tokens.map(({ text: token }) => token);
    if (!tokens.length) return { count: 0, tokens, labels, parts: {}, answers: [], numbers: [], unknown: [] };
    const numbers = tokens.map(({ number }) => number);
    return predict(embed(info.embedding, info.size, numbers), numbers.length, edits, { tokens, labels, unknown: unknownTokens(tokens) }, numbers);
  };
  const readSeries = (rows, edits) => {
    const x = Float32Array.from(rows.flatMap((row) => row.map((value, k) => (value - info.series[0][k]) / info.series[1][k])));
    return predict(x, rows.length, edits, { rows, labels: rows.map((row) => row.map((value) => fixed(value)).join(", ")) });
  };
  const title = () => say("live.prediction");
  const base = text ? textModel({ colour: () => "", titled: () => "", legend: () => [], title }) : seriesModel({ title });
  return {
    ...base,
    task: "regression",
    lede: text ? say("lede.regression") : say("lede.regression_of_series"),
    encoder: info.encoder,
    read: text ? readText : readSeries,
    answers: (container, plain, shown) => (plain.count ? showNumbers(container, plain, shown, title()) : container.replaceChildren()),
    compare: compareNumbers,
  };
};
