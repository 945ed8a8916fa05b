const MAX_CHARACTERS = 4000;

// A text field that colours its text: a transparent textarea over the same text in spans.
const makeEditor = (container, label, text, listeners) => {
  const paint = element("div", { className: "live-paint", ariaHidden: "true" });
  const area = element("textarea", { value: text, spellcheck: false, rows: 1, maxLength: MAX_CHARACTERS, autocomplete: "off", oninput: () => listeners.typed(area.value) });
  area.setAttribute("aria-label", label);
  area.setAttribute("autocapitalize", "off");
  container.append(element("div", { className: "live-editor" }, paint, area));
  let tokens = [];
  let spans = [];
  const tokenAt = (at) => {
    const found = tokens.findLastIndex(({ from }) => from <= at);
    return found < 0 ? 0 : found;
  };
  const moved = () => {
    if (document.activeElement !== area || !tokens.length) return;
    const [from, to] = [tokenAt(area.selectionStart), tokenAt(Math.max(area.selectionStart, area.selectionEnd - 1))];
    listeners.moved(from, area.selectionEnd > area.selectionStart ? [from, to + 1] : null);
  };
  document.addEventListener("selectionchange", moved);
  return {
    get text() {
      return area.value;
    },
    set text(value) {
      area.value = value;
    },
    // One class and one title for each token; other text is left as it is.
    colour(found, classes, titles) {
      tokens = found;
      let at = 0;
      const nodes = [];
      spans = found.map(({ from, to }, k) => {
        nodes.push(area.value.slice(at, from));
        const span = element("span", { className: classes[k], title: titles[k] }, area.value.slice(from, to));
        nodes.push(span);
        at = to;
        return span;
      });
      // The last character keeps a line for the caret after a line end.
      paint.replaceChildren(...nodes, `${area.value.slice(at)}\u200b`);
    },
    mark(token) {
      for (const span of spans) span.classList.remove("on");
      spans[token]?.classList.add("on");
    },
  };
};

// Returns a function from the index of a label to its CSS class, one of twelve colours. Labels such as "O" have no colour.
const colourOf = (names) => {
  const plain = names.findIndex((name) => ["O", "other", "text", "none"].includes(name));
  const order = names.map((_, k) => k).filter((k) => k !== plain);
  const classes = new Map(order.map((k, index) => [k, `c${index % 12}`]));
  return (k) => classes.get(k) ?? "";
};
const legendOf = (names, used, classOf) =>
  used.filter((k) => classOf(k)).map((k) => element("b", { className: classOf(k) }, names[k]));
