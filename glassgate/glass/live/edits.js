// Edits of gates and states: a row of controls for each edit, its description, and its Python code.
const KINDS = { hold: "hold at", scale: "multiply by", replace: "take from another text" };

// Parses "3" or "0-7, 12" as a list of units or steps below `count`. Returns null for "all".
const parseNumbers = (words, count) => {
  if (/^\s*(all)?\s*$/i.test(words)) return null;
  const found = words.split(",").flatMap((part) => {
    const [first, last = first] = part.split(/[-–]/).map((each) => Number.parseInt(each, 10));
    return Number.isNaN(first) || Number.isNaN(last) ? [] : Array.from({ length: Math.max(0, last - first + 1) }, (_, k) => first + k);
  });
  return [...new Set(found)].filter((unit) => unit >= 0 && unit < count).sort((a, b) => a - b);
};

const spansOf = (units) => {
  const spans = [];
  for (const unit of units) {
    if (spans.length && spans.at(-1)[1] === unit - 1) spans.at(-1)[1] = unit;
    else spans.push([unit, unit]);
  }
  return spans.map(([first, last]) => (first === last ? `${first}` : `${first} to ${last}`)).join(", ");
};

const shortOf = ({ name }) => name.slice(name.lastIndexOf(".") + 1);
const partOf = ({ name }) => name.slice(0, name.lastIndexOf("."));

// The description of an edit: "f of encoder.layer0.forward, unit 3, held at 0 at steps 5 to 12".
const describeEdit = (edit) => {
  const units = edit.units === null ? "" : `, ${edit.units.length === 1 ? "unit" : "units"} ${spansOf(edit.units)},`;
  const done = { hold: `held at ${edit.value}`, scale: `multiplied by ${edit.value}`, replace: "taken from the other text" }[edit.kind];
  const last = edit.to === null ? "the last" : `${edit.to}`;
  const steps = edit.from === null ? "" : edit.to - edit.from === 1 ? ` at step ${edit.to}` : ` at steps ${edit.from + 1} to ${last}`;
  return `${shortOf(edit)} of ${partOf(edit)}${units} ${done}${steps}`;
};

// The Python code that makes the same edits; `setup` loads the model, `call` runs it.
const pythonOf = (edits, { setup, call, other }) => {
  const argumentsOf = ({ units, from, to }) => {
    const words = [];
    if (units !== null) words.push(`units=[${units.join(", ")}]`);
    if (from !== null) words.push(`steps=slice(${from}, ${to})`);
    return words;
  };
  const lines = [...setup];
  const patches = edits.filter(({ kind }) => kind === "replace");
  patches.forEach((edit, k) => lines.push(`with gg.record(model, first=True) as tape${k}:`, `    ${other(edit.text)}`));
  const names = [...new Set(edits.map(({ name }) => name))];
  lines.push("edits = {");
  for (const name of names) {
    const calls = edits.filter((edit) => edit.name === name).map((edit) => {
      if (edit.kind === "replace") return `gg.replace(${[`tape${patches.indexOf(edit)}["${name}"]`, ...argumentsOf(edit)].join(", ")})`;
      return `gg.${edit.kind}(${[edit.value, ...argumentsOf(edit)].join(", ")})`;
    });
    lines.push(`    "${name}": [${calls.join(", ")}],`);
  }
  lines.push("}", "with gg.edit(model, edits):", `    ${call}`);
  return lines.join("\n");
};

// The list of edits. `page` provides the directions, the selected gate or state, and the values of another text.
const makeEdits = (container, page, changed) => {
  const readers = [];
  const list = element("div");
  const add = element("button", { type: "button", className: "primary", onclick: () => append() }, "Add a change");
  const clear = element("button", { type: "button", hidden: true, onclick: () => reset() }, "Undo all");
  const hint = element("p", { className: "live-note" }, "Hold, scale or replace any gate or state, for any units and steps. The new answer is shown next to the original one.");
  container.append(hint, list, element("div", { className: "live-controls" }, add, " ", clear));
  const reset = () => {
    readers.length = 0;
    list.replaceChildren();
    clear.hidden = true;
    hint.hidden = false;
    changed();
  };
  const append = (given = {}) => {
    const chosen = { ...page.chosen(), kind: "hold", value: 0, ...given };
    const names = page.directions.flatMap(({ label, gates, states }) => [...gates, ...Object.keys(states)].map((name) => `${label}.${name}`));
    const name = element("select", {}, ...names.map((each) => new Option(each.replace(/^encoder\./, ""), each, false, each === chosen.name)));
    const units = element("input", { value: chosen.unit === undefined ? "all" : String(chosen.unit), placeholder: "all, 3 or 0-7", autocomplete: "off" });
    const kind = element("select", {}, ...Object.entries(KINDS).filter(([key]) => key !== "replace" || page.valuesFor).map(([key, words]) => new Option(words, key, false, key === chosen.kind)));
    const slider = element("input", { type: "range", step: 0.01 });
    const exact = element("input", { type: "number", step: 0.01 });
    slider.setAttribute("aria-label", "value");
    exact.setAttribute("aria-label", "value, as a number");
    const other = element("input", { value: "", placeholder: "another text", autocomplete: "off" });
    const steps = element("input", { value: chosen.steps ?? "all", placeholder: "all or 5-12", autocomplete: "off" });
    const values = element("div", { className: "slider wide" }, slider, exact);
    const texts = element("label", { className: "wide" }, "the text", other);
    const remove = element("button", { type: "button", onclick: () => { readers.splice(readers.indexOf(readEdit), 1); node.remove(); clear.hidden = !readers.length; hint.hidden = readers.length > 0; changed(); } }, "Remove");
    const node = element("div", { className: "live-edit" }, element("label", {}, "gate or state", name), element("label", {}, "units", units),
      element("label", {}, "change", kind), element("label", {}, "steps", steps), values, texts, remove);
    // A decoder takes one step at a time, for which neither a range of steps nor values of another text are defined.
    const isDecoder = () => name.value.startsWith("decoder");
    const updateControls = () => {
      steps.disabled = isDecoder();
      if (isDecoder()) steps.value = "all";
      for (const option of kind.options) option.disabled = option.value === "replace" && isDecoder();
      if (isDecoder() && kind.value === "replace") kind.value = "hold";
      const [low, high] = kind.value === "scale" ? [0, 3] : page.rangeOf(name.value);
      Object.assign(slider, { min: low, max: high });
      values.hidden = kind.value === "replace";
      texts.hidden = kind.value !== "replace";
    };
    const set = (value) => {
      exact.value = value;
      slider.value = value;
    };
    const readEdit = () => {
      const direction = page.directions.find(({ label }) => name.value.startsWith(`${label}.`));
      const short = name.value.slice(direction.label.length + 1);
      const span = parseNumbers(steps.value.replaceAll(" ", ""), Infinity);
      const edit = { name: name.value, kind: kind.value, value: Number(exact.value) || 0, units: parseNumbers(units.value, Object.hasOwn(direction.states, short) ? direction.states[short] : direction.units),
        from: span === null || !span.length ? null : span[0] - 1, to: span === null || !span.length ? null : span.at(-1), text: other.value };
      if (edit.kind !== "replace") return edit;
      const { values, count } = page.valuesFor(edit.text, edit.name);
      return { ...edit, values, from: edit.from ?? 0, to: Math.min(edit.to ?? count, count) };
    };
    kind.addEventListener("input", () => set(kind.value === "scale" ? 1 : 0));
    slider.addEventListener("input", () => (exact.value = slider.value));
    exact.addEventListener("input", () => (slider.value = exact.value));
    node.addEventListener("input", () => {
      updateControls();
      changed();
    });
    readers.push(readEdit);
    list.append(node);
    updateControls();
    set(chosen.value);
    clear.hidden = false;
    hint.hidden = true;
    changed();
    return node;
  };
  return { get: () => readers.map((readEdit) => readEdit()).filter(({ from, to }) => from === null || from < to), append, reset };
};
