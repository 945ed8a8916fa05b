// The marked steps and units of a run, and the list of places at which the units have similar states.
const MAX_PLACES = 12;
// The list shows this number of steps before and after each place.
const CONTEXT_STEPS = 4;

// The list item of a place: its distance, its position, and its text. The state of `unit` shades the steps.
const placeRow = (source, place, length, unit, series) => {
  const text = source.texts[place.sequence];
  const separator = text.every((step) => step.length <= 1) ? "" : " ";
  const words = element("span", { className: separator ? "place words" : "place letters", dir: "auto" });
  const [from, to] = [Math.max(0, place.start - CONTEXT_STEPS), Math.min(text.length, place.start + length + CONTEXT_STEPS)];
  let parent = words;
  for (let k = from; k < to; k++) {
    if (k === place.start + length) parent = words;
    if (k > from) parent.append(separator);
    if (k === place.start) words.append((parent = element("mark")));
    const t = source.starts[place.sequence] + k;
    const scaled = (source.value(unit, t) - source.mean[unit]) / Math.max(1e-6, source.deviation[unit]);
    parent.append(element("span", { className: `u ${shadeOf(scaled / 2)}`, title: text[k] }, series ? "" : text[k]));
  }
  const number = source.numbers[place.sequence] + 1;
  const where = say("search.place", { sequence: number, step: place.start + 1 });
  return element("li", {}, element("b", {}, fixed(place.distance)), element("small", {}, where), words);
};

// `now` is the cursor of the run, and `elements` are those of the section Search. Returns functions that mark steps.
const marking = (data, reading, now, stepSpans, elements, panes) => {
  const { form, steps: stepsField, passage, units: unitsField, output, list, note } = elements;
  const marks = { first: 0, stop: 0, anchor: 0 };
  const sources = new Map();
  const partHere = () => data.parts[now.part];
  const sourceHere = () => {
    const part = partHere();
    if (!sources.has(part.label))
      sources.set(part.label, data.places ? embeddedPlaces(data.places, part.label) : ownPlaces(data, part, reading.value));
    return sources.get(part.label);
  };
  const valueHere = (unit, step) => reading.value(partHere(), partHere().states[0], step, unit);

  const paint = () => {
    for (const [step, span] of stepSpans) span.classList.toggle("marked", step >= marks.first && step < marks.stop);
    const total = reading.total;
    for (const pane of panes) {
      pane.style.display = marks.stop > marks.first ? "block" : "none";
      pane.style.left = `${(100 * marks.first) / total}%`;
      pane.style.width = `${(100 * (marks.stop - marks.first)) / total}%`;
    }
  };

  const explain = (words) => {
    output.textContent = words;
    list.replaceChildren();
    note.textContent = "";
  };

  const search = () => {
    const source = sourceHere();
    const part = partHere();
    const { first, stop } = marks;
    const k = reading.passageOf(first);
    const known = source.units.filter((unit) => valueHere(unit, first) !== undefined);
    const named = numbersIn(unitsField.value, 0, part.units - 1);
    if (!named) return explain(unitsProblem(unitsField.value, part.units));
    const missing = named.find((unit) => !known.includes(unit));
    if (missing !== undefined) return explain(say("search.no_values", { unit: missing }));
    const active = named.length ? [] : activeUnits({ ...source, units: known }, valueHere, first, stop, data.starts[k], data.starts[k + 1]);
    const units = [named, active, [now.unit]].find((each) => each.length);
    if (!known.includes(units[0])) return explain(say("search.no_values", { unit: units[0] }));
    const why = named.length ? "" : active.length ? say("search.why_active") : say("search.why_selected");
    const pattern = units.map((unit) => Array.from({ length: stop - first }, (_, each) => valueHere(unit, first + each)));
    const found = nearestPlaces(source, pattern, units, MAX_PLACES, data.places ? null : [first, stop]);
    const compared = { state: part.states[0], direction: part.label, count: units.length, units: listed(units), why };
    output.textContent = found.length ? say("search.compared", compared) : say("search.none");
    list.replaceChildren(...found.map((each) => placeRow(source, each, stop - first, units[0], data.series)));
    const counts = new Map();
    for (const { sequence, start } of found) {
      const words = source.texts[sequence].slice(start, start + stop - first).join(" ");
      counts.set(words, (counts.get(words) ?? 0) + 1);
    }
    const repeated = [...counts].filter(([, count]) => count > 1).sort((a, b) => b[1] - a[1]).slice(0, 5);
    const frequent = repeated.length && !data.series ? say("search.frequent", { steps: listed(repeated.map(([words, count]) => `${quoted(words)} ${count}`)) }) : "";
    const closeness = found.length ? say("search.closeness", { percent: percent(found.at(-1).closer) }) : "";
    note.textContent = sentences(frequent, closeness);
  };

  // Marks steps of the passage that contains `from`, and searches.
  const mark = (from, to, units = null) => {
    const k = reading.passageOf(from);
    const [low, high] = [Math.min(from, to), Math.max(from, to) + 1];
    marks.first = Math.max(data.starts[k], low);
    marks.stop = Math.min(data.starts[k + 1], high);
    if (units) unitsField.value = units.join(", ");
    if (passage) passage.value = k + 1;
    const [first, last] = [marks.first - data.starts[k] + 1, marks.stop - data.starts[k]];
    stepsField.value = first === last ? `${first}` : `${first}-${last}`;
    paint();
    search();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const most = data.starts.length - 1;
    const sequence = passage ? Number(passage.value || 1) : 1;
    if (passage?.validity.badInput || !Number.isInteger(sequence) || sequence < 1 || sequence > most)
      return explain(numberProblem(say("field.sequence"), 1, most, passage.value));
    const k = sequence - 1;
    const count = data.starts[k + 1] - data.starts[k];
    const range = rangeIn(stepsField.value, count);
    if (!range) return explain(stepsProblem(stepsField.value, count));
    mark(data.starts[k] + range[0], data.starts[k] + range[1] - 1);
  });
  // With Shift, the arrow keys extend the marked steps from the cursor.
  const extend = (by) => {
    const stays = marks.stop > marks.first && (marks.anchor === marks.first || marks.anchor === marks.stop - 1);
    if (!stays || (now.step !== marks.first && now.step !== marks.stop - 1)) marks.anchor = now.step;
    const k = reading.passageOf(marks.anchor);
    const step = Math.max(data.starts[k], Math.min(data.starts[k + 1] - 1, now.step + by));
    mark(marks.anchor, step);
    return step;
  };
  const clear = () => {
    marks.first = marks.stop = 0;
    unitsField.value = stepsField.value = "";
    paint();
    explain("");
  };
  const searchAgain = () => marks.stop > marks.first && search();
  return { mark, extend, clear, searchAgain };
};
