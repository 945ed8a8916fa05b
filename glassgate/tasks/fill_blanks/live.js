// Filling blanks: each token as if it were missing, predicted from both sides.
models["fill-blanks"] = (info, run) => {
  const memory = new Map();
  const tokenize = tokenizer(info.tokens);

  const read = (text, edits) => {
    const tokens = tokenize(text);
    const count = tokens.length;
    if (!count) return tokenised(tokens);
    const { outputs, parts } = run(info.encoder, embed(info.embedding, info.size, numbersOf(tokens)), count, { edits, memory });
    const [forward, backward] = outputs.map((output) => rowsOf(output, count));
    const zeros = new Float32Array(info.units);
    const oneTokenLeft = info.left.subarray(info.units, 2 * info.units);
    const answers = tokens.map(({ number }, k) => {
      const beside = concatenate([k ? forward[k - 1] : zeros, ...(backward ? [k + 1 < count ? backward[k + 1] : zeros] : [])]);
      const joined = linear(info.beside, beside, 1).map((value, u) => Math.tanh(value + oneTokenLeft[u]));
      const chances = softmax(linear(info.head, joined, 1));
      return { step: k, token: k, names: info.names, chances, chosen: argmax(chances), expected: number - UNKNOWN };
    });
    return { ...tokenised(tokens), parts, answers };
  };

  return {
    ...textModel({
      colour: ({ answers }, k) => shadeOf(answers[k].chances[answers[k].expected], "gate"),
      titled: ({ answers }, k) => say("live.expected_with", { percent: percent(answers[k].chances[answers[k].expected]) }),
      legend: () => [element("span", {}, say("live.by_blank")), element("b", { className: "g1" }, say("live.surprising")), element("b", { className: "g10" }, say("live.expected"))],
      title: ({ step }, { labels }) => say("live.if_missing", { token: quoted(labels[step]), step: step + 1 }),
    }),
    task: "fill-blanks",
    lede: say("lede.fill_blanks"),
    encoder: info.encoder,
    read,
  };
};
