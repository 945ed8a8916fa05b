// Tagging: a label for each token, and an intent for the whole text if the run has intents.
models.tagging = (info, run) => {
  const memory = new Map();
  const tokenize = tokenizer(info.tokens);
  const characters = info.spelling && new Map(info.spelling.symbols.map((symbol, k) => [symbol, k + FIRST]));
  const spellingVectors = new Map();

  // The vector of a word: the final outputs of both directions of the layer over its characters.
  const spelling = (word) => {
    if (!spellingVectors.has(word)) {
      const letters = [...word];
      const kept = letters.length <= 32 ? letters : [...letters.slice(0, 16), ...letters.slice(-16)];
      const numbers = kept.map((letter) => characters.get(letter) ?? UNKNOWN);
      const { layer, embedding, size } = info.spelling;
      spellingVectors.set(word, finalOutputs(layer, run(layer, embed(embedding, size, numbers), numbers.length, {}).parts));
    }
    return spellingVectors.get(word);
  };

  const inputOf = (tokens) => {
    const vectors = embed(info.embedding, info.size, numbersOf(tokens));
    if (!info.spelling) return vectors;
    return concatenate(rowsOf(vectors, tokens.length).flatMap((row, k) => [row, spelling(tokens[k].text)]));
  };

  // The best path of labels through a chain of transitions (Viterbi).
  const bestPath = (scores, { start, transitions, end }) => {
    const labels = start.length;
    let total = scores[0].map((score, k) => score + start[k]);
    const origins = scores.slice(1).map((row) => {
      const before = total;
      const from = Array.from(row, (_, k) => argmax(before.map((score, j) => score + transitions[j * labels + k])));
      total = row.map((score, k) => before[from[k]] + transitions[from[k] * labels + k] + score);
      return from;
    });
    const path = [argmax(total.map((score, k) => score + end[k]))];
    for (const from of origins.reverse()) path.unshift(from[path[0]]);
    return path;
  };

  const read = (text, edits) => {
    const tokens = tokenize(text);
    const count = tokens.length;
    if (!count) return tokenised(tokens);
    const { output, parts } = run(info.encoder, inputOf(tokens), count, { edits, memory });
    const scores = rowsOf(linear(info.head, output, count), count);
    const path = info.chain ? bestPath(scores, info.chain) : scores.map(argmax);
    const answers = scores.map((row, step) => ({ step, token: step, names: info.labels, chances: softmax(row), chosen: path[step] }));
    if (info.intents) {
      const peaks = rowsOf(output, count).reduce((most, row) => most.map((value, k) => Math.max(value, row[k])), new Float32Array(output.length / count).fill(-Infinity));
      const chances = softmax(linear(info.intent_head, peaks, 1));
      answers.push({ step: null, names: info.intents, chances, chosen: argmax(chances) });
    }
    return { ...tokenised(tokens), parts, answers };
  };

  const classOf = colourOf(info.labels);
  return {
    ...textModel({
      colour: ({ answers }, k) => classOf(answers[k].chosen),
      titled: ({ answers }, k) => `${info.labels[answers[k].chosen]} ${percent(answers[k].chances[answers[k].chosen])}`,
      legend: ({ answers }) => legendOf(info.labels, [...new Set(answers.filter(({ step }) => step !== null).map(({ chosen }) => chosen))].sort((a, b) => a - b), classOf),
      title: ({ step }, { labels }) => (step === null ? say("live.whole_text") : say("live.step_is", { step: step + 1, token: quoted(labels[step]) })),
    }),
    task: "tagging",
    lede: say("lede.tagging"),
    encoder: info.encoder,
    read,
  };
};
