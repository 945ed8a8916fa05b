// Edits of gates and states: a row of controls for each edit, its description, and its Python code.
const KINDS = { hold: say("edits.hold"), scale: say("edits.scale"), replace: say("edits.replace") };

const spansOf = (units) => {
  const spans = [];
  for (const unit of units) {
    if (spans.length && spans.at(-1)[1] === unit - 1) spans.at(-1)[1] = unit;
    else spans.push([unit, unit]);
  }
  return listed(spans.map(([first, last]) => (first === last ? `${first}` : say("words.range", { low: first, high: last }))));
};

const shortOf = ({ name }) => name.slice(name.lastIndexOf(".") + 1);
const partOf = ({ name }) => name.slice(0, name.lastIndexOf("."));

// The description of an edit: "f of encoder.layer0.forward, unit 3, held at 0 at steps 5 to 12".
const describeEdit = (edit) => {
  const { value, from, to } = edit;
  const units = edit.units === null ? "" : say("edits.units", { count: edit.units.length, units: spansOf(edit.units) });
  const done = { hold: say("edits.held", { value }), scale: say("edits.multiplied", { value }), replace: say("edits.taken") }[edit.kind];
  const steps = from === null ? "" : to - from === 1 ? say("words.step", { step: to }) : say("words.step_range", { first: from + 1, last: to ?? say("edits.last") });
  return say("edits.edit", { name: shortOf(edit), direction: partOf(edit), units, done, steps: steps && say("edits.at", { steps }) });
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
  const rows = [];
  const list = element("div");
  const add = element("button", { type: "button", className: "primary", onclick: () => append() }, say("edits.add"));
  const clear = element("button", { type: "button", hidden: true, onclick: () => reset() }, say("edits.undo"));
  const hint = element("p", { className: "live-note" }, say("edits.hint"));
  container.append(hint, list, element("div", { className: "live-controls" }, add, " ", clear));
  const reset = () => {
    rows.length = 0;
    list.replaceChildren();
    clear.hidden = true;
    hint.hidden = false;
    changed();
  };
  const append = (given = {}) => {
    const chosen = { ...page.chosen(), kind: "hold", value: 0, ...given };
    const names = page.directions.flatMap(({ label, gates, states }) => [...gates, ...Object.keys(states)].map((name) => `${label}.${name}`));
    const name = element("select", {}, ...names.map((each) => new Option(each.replace(/^encoder\./, ""), each, false, each === chosen.name)));
    const units = element("input", { value: chosen.units ?? (chosen.unit === undefined ? say("field.all") : String(chosen.unit)), placeholder: say("edits.units_example"), autocomplete: "off" });
    const kind = element("select", {}, ...Object.entries(KINDS).filter(([key]) => key !== "replace" || page.valuesFor).map(([key, words]) => new Option(words, key, false, key === chosen.kind)));
    const slider = element("input", { type: "range", step: 0.01 });
    const exact = element("input", { type: "number", step: "any" });
    slider.setAttribute("aria-label", say("edits.value"));
    exact.setAttribute("aria-label", say("edits.exact_value"));
    const other = element("textarea", { value: chosen.text ?? "", rows: 2, placeholder: say("edits.another_text"), autocomplete: "off", spellcheck: false, dir: "auto" });
    const steps = element("input", { value: chosen.steps ?? say("field.all"), placeholder: say("edits.steps_example"), autocomplete: "off" });
    const values = element("div", { className: "slider wide" }, slider, exact);
    const texts = element("label", { className: "wide" }, say("edits.text"), other);
    const problems = [units, steps, exact, other].map((field) => [field, element("output", { className: "live-warning wide" })]);
    for (const [, output] of problems) output.setAttribute("aria-live", "polite");
    const remove = element("button", { type: "button", onclick: () => { rows.splice(rows.indexOf(row), 1); node.remove(); clear.hidden = !rows.length; hint.hidden = rows.length > 0; changed(); } }, say("edits.remove"));
    const node = element("div", { className: "live-edit" }, element("label", {}, say("edits.name"), name), element("label", {}, say("search.units"), units),
      element("label", {}, say("edits.kind"), kind), element("label", {}, say("search.steps"), steps), values, texts, ...problems.map(([, output]) => output), remove);
    // A decoder takes one step at a time, for which neither a range of steps nor values of another text are defined.
    const isDecoder = () => name.value.startsWith("decoder");
    const updateControls = () => {
      steps.disabled = isDecoder();
      if (isDecoder()) steps.value = say("field.all");
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
        isAll(steps.value) || range ? "" : count ? stepsProblem(steps.value, count) : say("field.no_steps"),
        replaces || Number.isFinite(Math.fround(value)) ? "" : say("field.value", { given: exact.value || say("field.no_number") }),
        !replaces || given?.count ? "" : say("field.other_text"),
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
    const orAll = (field) => (isAll(field.value) ? "" : field.value);
    const row = { read: readEdit, fields: () => ({ name: name.value, kind: kind.value, value: exact.value, units: orAll(units), steps: orAll(steps), text: other.value }) };
    rows.push(row);
    list.append(node);
    updateControls();
    set(chosen.value);
    clear.hidden = false;
    hint.hidden = true;
    changed();
    return node;
  };
  // The words in the fields of all edits, and the edits that such words describe.
  const fields = () => rows.map((row) => row.fields());
  const restore = (given) => {
    reset();
    for (const each of given) append(each);
  };
  return { get: () => rows.map((row) => row.read()).filter(Boolean), append, fields, restore };
};
