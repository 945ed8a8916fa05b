// Edits of gates and states: a row of controls for each edit, its description, and its Python code.
const KINDS = { hold: "hold at", scale: "multiply by", replace: "take from another text" };

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

// The list of edits. `page` provides the directions, the selected gate or state, the number of steps, and the values of
// another text. Edits with a problem are not applied; their row shows the problem.
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
    const exact = element("input", { type: "number", step: "any" });
    slider.setAttribute("aria-label", "value");
    exact.setAttribute("aria-label", "value, as a number");
    const other = element("textarea", { value: "", rows: 2, placeholder: "another text", autocomplete: "off", spellcheck: false, dir: "auto" });
    const steps = element("input", { value: chosen.steps ?? "all", placeholder: "all or 5-12", autocomplete: "off" });
    const values = element("div", { className: "slider wide" }, slider, exact);
    const texts = element("label", { className: "wide" }, "the text", other);
    const problems = [units, steps, exact, other].map((field) => [field, element("output", { className: "live-warning wide" })]);
    for (const [, output] of problems) output.setAttribute("aria-live", "polite");
    const remove = element("button", { type: "button", onclick: () => { readers.splice(readers.indexOf(readEdit), 1); node.remove(); clear.hidden = !readers.length; hint.hidden = readers.length > 0; changed(); } }, "Remove");
    const node = element("div", { className: "live-edit" }, element("label", {}, "gate or state", name), element("label", {}, "units", units),
      element("label", {}, "change", kind), element("label", {}, "steps", steps), values, texts, ...problems.map(([, output]) => output), remove);
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
    // Returns the edit, or null if a field has a problem.
    const readEdit = () => {
      const direction = page.directions.find(({ label }) => name.value.startsWith(`${label}.`));
      const width = direction.values[name.value.slice(direction.label.length + 1)];
      const replaces = kind.value === "replace";
      const value = exact.value === "" ? NaN : Number(exact.value);
      const given = replaces && other.value.trim() ? page.valuesFor(other.value, name.value) : null;
      const count = Math.min(page.count(), given?.count ?? Infinity);
      const chosenUnits = isAll(units.value) ? null : numbersIn(units.value, 0, width - 1);
      const range = isAll(steps.value) ? null : rangeIn(steps.value, count);
      const found = [
        isAll(units.value) || chosenUnits?.length ? "" : unitsProblem(units.value, width),
        isAll(steps.value) || range ? "" : count ? stepsProblem(steps.value, count) : "Steps: there are none. Type some text above.",
        replaces || Number.isFinite(Math.fround(value)) ? "" : `Value: expected a number, got ${exact.value || "none"}.`,
        !replaces || given?.count ? "" : "The other text: expected at least one token, got none.",
      ];
      problems.forEach(([field, output], k) => setProblem(field, output, found[k]));
      if (found.some(Boolean)) return null;
      const [from, to] = range ?? (replaces ? [0, count] : [null, null]);
      return { name: name.value, kind: kind.value, value, units: chosenUnits, from, to, text: other.value, values: given?.values };
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
  return { get: () => readers.map((readEdit) => readEdit()).filter(Boolean), append, reset };
};
