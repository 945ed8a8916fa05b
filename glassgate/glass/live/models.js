// The common part of the models of all tasks. The script of a task adds a function to `models`. The function takes the
// description of the model and a function that runs a layer. It returns {task, kind, lede, encoder, read, input, answers,
// compare, python} and, for some tasks, {decoder, decoding, inputs}.
//
// `read` returns {count, labels, parts, answers}: the number of steps, the input of each step in words, the run of each
// direction, and the answers, {step, names, chances, chosen, expected}. The step of an answer about the whole input is null.
const models = {};

const answersAt = ({ answers }, step) => {
  const here = answers.filter((each) => each.step === step);
  return [...answers.filter((each) => each.step === null), ...here];
};

// The choices of an answer as bars. A mark shows the probability without the changes.
const barsOf = (answer, before) => {
  const rows = likeliest(answer.chances, [...answer.names.keys()]).flatMap(([k, chance]) => {
    const bar = element("dd", { className: "bar-of", ariaHidden: "true" }, element("i"));
    bar.firstChild.style.width = `${100 * chance}%`;
    if (before !== answer) {
      bar.append(element("u"));
      bar.lastChild.style.left = `${100 * before.chances[k]}%`;
    }
    return [element("dt", {}, quoted(answer.names[k])), bar, element("dd", { className: "number", title: before === answer ? "" : say("live.before", { percent: percent(before.chances[k]) }) }, percent(chance))];
  });
  return element("dl", { className: "live-bars" }, ...rows);
};

const showAnswers = (container, plain, shown, step, title) => {
  const [now, before] = [answersAt(shown, step), answersAt(plain, step)];
  const blocks = now.map((answer, k) => {
    const words = element("p", { className: "live-note" }, title(answer));
    const from = argmax(before[k].chances);
    const to = argmax(answer.chances);
    const changed = from !== to ? element("p", { className: "live-note" }, say("live.answer_before", { answer: quoted(answer.names[from]), percent: percent(before[k].chances[from]) })) : "";
    return element("div", {}, words, barsOf(answer, before[k]), changed);
  });
  container.replaceChildren(...blocks);
};

const OVERFLOW = say("change.overflow");
const changedInWords = (changed, total) => (total === 1 ? (changed ? say("change.one_changed") : say("change.one_same")) : say("change.changed", { changed, total }));
const natsInWords = (nats) => (Number.isFinite(nats) ? Number(Math.abs(nats).toPrecision(2)) : say("change.infinite"));
const lossInWords = (nats, total) => (nats < 0 ? say("change.gain", { nats: natsInWords(nats), total }) : say("change.loss", { nats: natsInWords(nats), total }));

// A description of how the answers differ: the number of changed answers, the loss of the original ones, and the largest change.
const compareAnswers = (plain, shown) => {
  const pairs = plain.answers.map((before, k) => [before, shown.answers[k]]);
  const changed = pairs.filter(([before, now]) => before.chosen !== now.chosen);
  const losses = pairs.map(([before, now]) => Math.log(before.chances[before.chosen]) - Math.log(now.chances[before.chosen]));
  const cost = sum(losses) / Math.max(1, losses.length);
  if (Number.isNaN(cost)) return OVERFLOW;
  const words = say("change.sentence", { changed: changedInWords(changed.length, losses.length), loss: lossInWords(cost, losses.length) });
  if (!changed.length) return words;
  const most = argmax(losses);
  const [before, now] = pairs[most];
  const fields = { answer: quoted(before.names[before.chosen]), from: percent(before.chances[before.chosen]), to: percent(now.chances[before.chosen]), now: quoted(now.names[now.chosen]) };
  return sentences(words, before.step === null ? say("change.largest", fields) : say("change.largest_at", { step: before.step + 1, ...fields }));
};

// The first lines of the Python code of a page: the run's task and its network.
const pythonSetup = ({ path }, imports = []) => [
  "import glassgate as gg", ...["from glassgate.tasks import task_class_of_run", "from glassgate.tasks.report.ask import ask", ...imports].sort(), "",
  `task = task_class_of_run(${JSON.stringify(path)}).load(${JSON.stringify(path)})`, "model = task.network",
];

// The common members of models of texts. `colour(result, k)` returns the CSS class of a token, `titled(result, k)` its
// tooltip, and `legend(result)` the elements of the key.
const textModel = ({ colour, titled, legend, title, offset = 0, extra = null }) => ({
  kind: "text",
  input(container, given, listeners) {
    const editor = makeEditor(container, say("live.text_read"), given, { typed: listeners.typed, moved: (token, marked) => listeners.moved(token + offset, marked) });
    const key = element("p", { className: "live-key" });
    container.append(key);
    this.editor = editor;
    extra?.(container, this, listeners);
    return {
      get: () => editor.text,
      set: (text) => {
        if (typeof text !== "string" || text.length > MAX_CHARACTERS) return false;
        editor.text = text;
        return true;
      },
      mark: (step) => editor.mark(step - offset),
      shown: (plain, shown) => {
        const changed = (k) => plain.answers.some((each, n) => each.token === k && each.chosen !== shown.answers[n].chosen);
        editor.colour(plain.tokens, plain.tokens.map((_, k) => `${colour(shown, k)}${changed(k) ? " changed" : ""}`), plain.tokens.map((_, k) => titled(shown, k)));
        key.replaceChildren(...legend(shown));
      },
    };
  },
  answers(container, plain, shown, step) {
    if (!plain.count) container.replaceChildren();
    else showAnswers(container, plain, shown, step, (answer) => title(answer, plain));
  },
  compare: compareAnswers,
  python: (text, run) => ({
    setup: [...pythonSetup(run), `text = ${JSON.stringify(text)}`],
    call: "print(ask(task, text))",
    other: (other) => `ask(task, ${JSON.stringify(other)})`,
  }),
});
