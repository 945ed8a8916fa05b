// Language model: the probability of each token after those before it, and text written on.
models["language-model"] = (info, run) => {
  const memory = new Map();
  const tokenize = tokenizer(info.tokens);
  const scored = ({ output, parts }, count) => {
    const narrow = info.narrow ? linear(info.narrow, output, count) : output;
    return { chances: chancesOf(info.head, narrow, count), parts };
  };

  // Step k reads the token before token k and predicts token k; the last step predicts the token after the text.
  const read = (text, edits) => {
    const tokens = tokenize(text);
    const numbers = [PADDING, ...tokens.map(({ number }) => number)];
    const count = numbers.length;
    const { chances, parts } = scored(run(info.encoder, embedded(info.embedding, info.size, numbers), count, { edits, memory }), count);
    const answers = chances.map((of, step) => ({
      step, token: step, names: info.names, chances: of, chosen: argmax(of), expected: step < tokens.length ? tokens[step].number - UNKNOWN : null,
    }));
    return { count, tokens, labels: ["▸", ...tokens.map(({ text: token }) => token)], parts, answers, unknown: unknownTokens(tokens) };
  };

  // Draws a token: probabilities raised to 1 / temperature; the most probable one at temperature 0. Never the unknown one.
  const draw = (chances, temperature) => {
    const known = chances.map((chance, k) => (k < FIRST - UNKNOWN ? 0 : chance));
    if (!temperature) return argmax(known);
    const heated = softmax(known.map((chance) => Math.log(chance) / temperature));
    let left = Math.random();
    return Math.max(1, heated.findIndex((chance) => (left -= chance) < 0));
  };
  const joined = (before, token) => {
    const { unit } = info.tokens;
    const last = tokenize(before).at(-1)?.text ?? "\n";
    const close = unit === "character" || last === "\n" || token === "\n" || (unit === "word" && /^[.,;:!?…)\]}»”%]$/u.test(token));
    return before + (close ? "" : " ") + token;
  };

  // Buttons that write on, token by token.
  const writer = (place, model, heard) => {
    const heat = element("input", { type: "range", min: 0, max: 2, step: 0.05, value: 0.8 });
    const said = element("output", {}, "0.80");
    heat.addEventListener("input", () => (said.textContent = Number(heat.value).toFixed(2)));
    let left = 0;
    const write = () => {
      if (left-- <= 0) return stop();
      const { chances } = model.read(model.editor.text, model.edits()).answers.at(-1);
      model.editor.text = joined(model.editor.text, info.names[draw(chances, Number(heat.value))]);
      heard.typed();
      heard.moved(Infinity, null);
      requestAnimationFrame(write);
    };
    const stop = () => {
      left = 0;
      button.textContent = "Write on";
    };
    const button = element("button", { type: "button", className: "primary", onclick: () => {
      if (left > 0) return stop();
      left = 120;
      button.textContent = "Stop";
      write();
    } }, "Write on");
    place.append(element("div", { className: "live-controls" }, button, element("label", {}, "temperature ", heat, " ", said)));
  };

  return {
    ...textModel({
      colour: ({ answers }, k) => shadeOf(answers[k].chances[answers[k].expected]),
      titled: ({ answers }, k) => `expected with ${percent(answers[k].chances[answers[k].expected])}`,
      legend: () => [element("span", {}, "Shaded by the probability that the network gave to each token:"), element("b", { className: "g1" }, "surprising"), element("b", { className: "g10" }, "expected")],
      title: ({ step }, { labels }) => `After ${quoted(labels[step])}, step ${step + 1}, comes:`,
      extra: info.tokens.unit === "byte" ? null : writer,
    }),
    task: "language-model",
    lede: "Type another text, or let the network write on: each token is shaded by the probability that the network gave to it.",
    encoder: info.encoder,
    edits: () => [],
    read,
  };
};
