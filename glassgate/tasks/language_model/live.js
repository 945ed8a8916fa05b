// Language model: the probability of each token or note, given the previous ones, and a button that continues the text.
models["language-model"] = (info, run) => (info.keys ? musicModel(info, run) : textLanguageModel(info, run));

// A button that continues the text: `next` returns the text with one more step, from the last answer and a temperature.
const writer = (next) => (container, model, listeners) => {
  const slider = element("input", { type: "range", min: 0, max: 2, step: 0.05, value: 0.8 });
  const readout = element("output", {}, "0.80");
  slider.addEventListener("input", () => (readout.textContent = fixed(Number(slider.value))));
  let left = 0;
  const write = () => {
    if (left-- <= 0) return stop();
    const { text } = model.editor;
    model.editor.text = next(text, model.read(text, model.edits()).answers.at(-1).chances, Number(slider.value));
    listeners.typed();
    listeners.moved(Infinity, null);
    requestAnimationFrame(write);
  };
  const stop = () => {
    left = 0;
    button.textContent = say("live.write_on");
  };
  const button = element("button", { type: "button", className: "primary", onclick: () => {
    if (left > 0) return stop();
    left = 120;
    button.textContent = say("live.stop");
    write();
  } }, say("live.write_on"));
  container.append(element("div", { className: "live-controls" }, button, element("label", {}, `${say("live.temperature")} `, slider, " ", readout)));
};

const textLanguageModel = (info, run) => {
  const memory = new Map();
  const tokenize = tokenizer(info.tokens);
  const score = ({ output, parts }, count) => {
    const projection = info.projection ? linear(info.projection, output, count) : output;
    return { chances: stepChances(info.head, projection, count), parts };
  };

  // Step k reads token k - 1 and predicts token k. The last step predicts the token after the text.
  const read = (text, edits) => {
    const tokens = tokenize(text);
    const numbers = [PADDING, ...numbersOf(tokens)];
    const count = numbers.length;
    const { chances, parts } = score(run(info.encoder, embed(info.embedding, info.size, numbers), count, { edits, memory }), count);
    const answers = chances.map((of, step) => ({
      step, token: step, names: info.names, chances: of, chosen: argmax(of), expected: step < tokens.length ? tokens[step].number - UNKNOWN : null,
    }));
    const read = tokenised(tokens);
    return { ...read, count, labels: ["▸", ...read.labels], parts, answers };
  };

  // Draws a known token with probabilities raised to 1 / temperature. At temperature 0, returns the most probable one.
  const draw = (chances, temperature) => {
    const known = chances.map((chance, k) => (k < FIRST - UNKNOWN ? 0 : chance));
    if (!temperature) return argmax(known);
    const tempered = softmax(known.map((chance) => Math.log(chance) / temperature));
    let left = Math.random();
    return Math.max(1, tempered.findIndex((chance) => (left -= chance) < 0));
  };
  const append = (before, token) => {
    const { unit } = info.tokens;
    const last = tokenize(before).at(-1)?.text ?? "\n";
    const close = unit === "character" || last === "\n" || token === "\n" || (unit === "word" && /^[.,;:!?…)\]}»”%]$/u.test(token));
    return before + (close ? "" : " ") + token;
  };

  const next = (text, chances, temperature) => append(text, info.names[draw(chances, temperature)]);

  return {
    ...textModel({
      colour: ({ answers }, k) => shadeOf(answers[k].chances[answers[k].expected], "gate"),
      titled: ({ answers }, k) => say("live.expected_with", { percent: percent(answers[k].chances[answers[k].expected]) }),
      legend: () => [element("span", {}, say("live.by_probability")), element("b", { className: "g1" }, say("live.surprising")), element("b", { className: "g10" }, say("live.expected"))],
      title: ({ step }, { labels }) => say("live.after", { token: quoted(labels[step]), step: step + 1 }),
      extra: info.tokens.unit === "byte" ? null : writer(next),
    }),
    task: "language-model",
    lede: say("lede.language_model"),
    encoder: info.encoder,
    edits: () => [],
    read,
  };
};

// Music: a line of MIDI numbers for each step, "-" for silence; each key has its own probability.
const musicModel = (info, run) => {
  const memory = new Map();
  const { count: keys, lowest } = info.keys;
  const names = Array.from({ length: keys }, (_, k) => `${k + lowest}`);
  const notesOf = (sounding) => names.filter((_, k) => sounding[k]).join(" ") || "-";

  const tokenize = (text) =>
    [...text.matchAll(/[^\n]*\S[^\n]*/g)].map(({ 0: line, index }) => {
      const notes = line.match(/\S+/g).filter((note) => note !== "-");
      const sounding = Float32Array.from(names, (name) => Number(notes.includes(name)));
      return { text: line.trim(), sounding, from: index, to: index + line.length, unknown: notes.filter((note) => !names.includes(note)) };
    });

  // Step k reads the notes of step k - 1 and predicts the notes of step k. The last step predicts the notes after the text.
  const read = (text, edits) => {
    const tokens = tokenize(text);
    const count = tokens.length + 1;
    const x = concatenate([new Float32Array(keys), ...tokens.map(({ sounding }) => sounding)]);
    const { output, parts } = run(info.encoder, x, count, { edits, memory });
    const answers = rowsOf(linear(info.head, output, count), count).map((scores, step) => {
      const chances = scores.map(sigmoid);
      const expected = tokens[step]?.sounding;
      const nats = expected && sum([...scores].map((score, k) => Math.log1p(Math.exp(-Math.abs(score))) + Math.max(score, 0) - expected[k] * score));
      return { step, token: step, names, chances, chosen: notesOf(chances.map((chance) => chance > 0.5)), expected, nats };
    });
    return { count, tokens, labels: ["▸", ...tokens.map(({ text: token }) => token)], parts, answers, unknown: [...new Set(tokens.flatMap(({ unknown }) => unknown))] };
  };

  const agreement = ({ chances, expected }) => {
    const both = sum([...expected].map((sounds, k) => sounds && Number(chances[k] > 0.5)));
    const all = sum([...expected]) + sum([...chances].map((chance) => Number(chance > 0.5)));
    return all ? (2 * both) / all : 1;
  };
  const next = (text, chances, temperature) => {
    const sounds = (chance) => (temperature ? Math.random() < sigmoid(Math.log(chance / (1 - chance)) / temperature) : chance > 0.5);
    return `${text.trimEnd()}\n${notesOf(Array.from(chances, sounds))}`;
  };
  return {
    ...textModel({
      colour: ({ answers }, k) => shadeOf(agreement(answers[k]), "gate"),
      titled: ({ answers }, k) => say("live.predicted", { notes: answers[k].chosen }),
      legend: () => [element("span", {}, say("live.by_agreement")), element("b", { className: "g1" }, say("live.no_agreement")), element("b", { className: "g10" }, say("live.full_agreement"))],
      title: ({ step, chosen }, { labels }) => say("live.after_notes", { notes: labels[step], step: step + 1, next: chosen }),
      extra: writer(next),
    }),
    task: "language-model",
    lede: say("lede.music"),
    encoder: info.encoder,
    inputs: names.map((name) => say("live.key", { name })),
    edits: () => [],
    read,
    compare: (plain, shown) => {
      const changed = plain.answers.filter(({ chosen }, k) => chosen !== shown.answers[k].chosen).length;
      const nats = (result) => sum(result.answers.slice(0, -1).map((answer) => answer.nats)) / Math.max(1, result.answers.length - 1);
      const cost = nats(shown) - nats(plain);
      if (Number.isNaN(cost)) return OVERFLOW;
      const loss = cost < 0 ? say("change.notes_gain", { nats: natsInWords(cost) }) : say("change.notes_loss", { nats: natsInWords(cost) });
      return say("change.notes", { changed, steps: stepsInWords(plain.answers.length), loss });
    },
  };
};
