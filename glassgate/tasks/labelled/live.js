// Classification and regression: a label or numbers for a text or a series, and the tokens that decided the label.
models.classification = models.regression = (info, run) => {
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
  // `numbers` are the numbers of the tokens of a text; series have none.
  const predict = (x, count, edits, numbers) => {
    const { output, parts } = run(info.encoder, x, count, { edits, memory });
    const { vector, attention } = pooled(output, parts, count);
    const scores = linear(info.head, vector, 1);
    const values = text ? addLinear(info.linear, numbers, scores) : addSeries(info.linear, x, count, scores);
    if (!info.labels) return { count, parts, answers: [], names: info.names, numbers: [...values].map((value, k) => value * info.deviation[k] + info.mean[k]) };
    const chances = softmax(values);
    return { count, parts, attention, answers: [{ step: null, names: info.labels, chances, chosen: argmax(chances) }] };
  };
  const predictTokens = (numbers, edits) => predict(embed(info.embedding, info.size, numbers), numbers.length, edits, numbers);

  // The nats by which the probability of the answer falls without each token.
  const decisive = (numbers, { chosen, chances }) =>
    (numbers.length > 80 ? [] : numbers).map((_, k) => {
      if (numbers.length === 1) return 0;
      const [answer] = predictTokens(numbers.filter((_, n) => n !== k), []).answers;
      return Math.log(chances[chosen]) - Math.log(answer.chances[chosen]);
    });
  const readText = (given, edits) => {
    const tokens = tokenize(given);
    if (!tokens.length) return { ...tokenised(tokens), numbers: [] };
    const numbers = numbersOf(tokens);
    const result = predictTokens(numbers, edits);
    return { ...tokenised(tokens), ...result, decisive: info.labels && !edits.length ? decisive(numbers, result.answers[0]) : [] };
  };
  const readSeries = (rows, edits) => {
    const x = Float32Array.from(rows.flatMap((row) => row.map((value, k) => (value - info.series[0][k]) / info.series[1][k])));
    return { ...predict(x, rows.length, edits), rows, labels: rows.map((row) => row.map((value) => fixed(value)).join(", ")) };
  };

  const weight = ({ attention, decisive }, k) => (attention ? attention[k] / Math.max(...attention) : decisive?.length ? decisive[k] / Math.max(0.05, ...decisive.map(Math.abs)) : 0);
  const coloured = {
    colour: (result, k) => shadeOf(weight(result, k)),
    titled: ({ attention, decisive }, k) => (attention ? say("live.attention", { percent: percent(attention[k]) }) : decisive?.length ? say("live.loses", { nats: fixed(decisive[k], 3) }) : ""),
    legend: ({ attention }) => attention
      ? [element("span", {}, say("live.by_attention")), element("b", { className: "p1" }, say("live.little")), element("b", { className: "p10" }, say("live.much"))]
      : [element("span", {}, say("live.by_loss")), element("b", { className: "n8" }, say("live.against_it")), element("b", { className: "p8" }, say("live.for_it"))],
  };
  const plain = { colour: () => "", titled: () => "", legend: () => [] };
  const title = () => (!info.labels ? say("live.prediction") : text ? say("live.whole_text_is") : say("live.whole_series_is"));
  const ledes = { classification: [say("lede.classification"), say("lede.classification_of_series")], regression: [say("lede.regression"), say("lede.regression_of_series")] };
  const numeric = {
    answers: (container, before, shown) => (before.count ? showNumbers(container, before, shown, title()) : container.replaceChildren()),
    compare: compareNumbers,
  };
  return {
    ...(text ? textModel({ ...(info.labels ? coloured : plain), title }) : seriesModel({ title })),
    task: info.task,
    lede: ledes[info.task][text ? 0 : 1],
    encoder: info.encoder,
    read: text ? readText : readSeries,
    ...(info.labels ? {} : numeric),
  };
};
