// The interactive part of a report: the reader's text or series, the answers, changes, activity, and one step in detail.
const live = (data) => {
  const arrayOf = unpackWeights(data.weights);
  const run = (layer, x, count, options) => runLayer(layer, steps, x, count, options);
  const model = models[data.model.task](withArrays(data.model, arrayOf), run);
  const now = { step: 0, part: "", name: "", unit: 0, orders: {}, order: [0] };
  let [plain, shown, edits, timer] = [null, null, [], null];

  const directionsOf = (layer) => layer?.levels.flatMap((level) => level.directions) ?? [];
  const directions = [...directionsOf(model.encoder), ...directionsOf(model.decoder)];
  const current = () => directions.find(({ label }) => label === now.part);
  const widthOf = (name) => current().values[name];
  const isDecoder = () => now.part.startsWith("decoder");
  // The token that each step of the selected direction reads.
  const labels = () => (isDecoder() ? shown.decoded : shown.labels);
  const namesOf = ({ gates, states }) => [...gates, ...Object.keys(states)];

  // Runs the network without and with the edits.
  const answer = () => {
    const before = performance.now();
    plain = model.read(input.get(), []);
    edits = changes.get();
    shown = edits.length ? model.read(input.get(), edits) : plain;
    const unknown = plain.unknown ?? [];
    byId("live-timing").textContent = plain.count ? `${plural(plain.count, "step")}, answered in ${Math.ceil(performance.now() - before)} ms` : "Type some text.";
    const full = model.kind === "text" && input.get().length >= MAX_CHARACTERS ? `The field holds at most ${MAX_CHARACTERS} characters. ` : "";
    byId("live-unknown").textContent = full + (unknown.length ? `Not in the training data and read as unknown: ${unknown.slice(0, 12).map(quoted).join(" ")}${unknown.length > 12 ? " …" : ""}` : "");
    now.step = clamp(now.step, 0, Math.max(0, labels().length - 1));
    byId("live-step").max = Math.max(0, labels().length - 1);
    input.shown(plain, shown, now);
    byId("live-change").textContent = edits.length && plain.count ? describe() : "";
    byId("live-python").textContent = pythonOf(edits, model.python(input.get(), data.run, data.given));
    arrange();
    paint();
    show();
  };

  const describe = () => `${edits.map(describeEdit).join("; ")}: ${model.compare(plain, shown)}`;

  // Sets the order of the units in the heat map. The order changes only after a pause in typing.
  const arrange = () => {
    if (!plain.count) return;
    const output = Object.keys(current().states)[0];
    const units = widthOf(now.name);
    now.orders[now.part] ??= orderOf(plain.parts[now.part].values[output], widthOf(output));
    now.order = now.orders[now.part].length === units ? now.orders[now.part] : [...Array(units).keys()];
  };

  // Paints the heat map.
  const paint = onFrame(() => {
    if (!plain.count) return;
    const values = shown.parts[now.part].values[now.name];
    const range = paintHeat(byId("live-heat"), values, widthOf(now.name), now.order, current().kinds[now.name]);
    const [low, high] = range.gate ? ["0, closed", "1, open"] : [fixed(-range.peak), fixed(range.peak)];
    const scale = byId("live-scale");
    scale.className = `scale ${range.gate ? "gate" : "signed"}`;
    [scale.firstChild.textContent, scale.lastChild.textContent] = [low, high];
    byId("live-heat").setAttribute("aria-label", `${now.name} of ${now.part}: ${plural(now.order.length, "unit")} at ${plural(labels().length, "step")}, from ${low} to ${high}`);
  });

  // Shows the values of the selected step and unit on the wires of the diagram, and its matrix products.
  const showDetails = onFrame(() => {
    if (!plain.count || !byId("live-details").open) return;
    const where = { run: shown.parts[now.part], step: now.step, unit: now.unit };
    showWires(byId("live-diagram"), where);
    showProducts(byId("live-products"), where, !isDecoder() && now.part.includes("layer0") ? model.inputs : null);
  });

  const show = () => {
    const { step, unit } = now;
    byId("live-step").value = step;
    byId("live-step").setAttribute("aria-valuetext", plain.count ? `step ${step + 1}: ${labels()[step]}` : "");
    if (isDecoder()) model.decoding(step);
    else input.mark(step);
    model.answers(byId("live-answers"), plain, shown, step);
    if (!plain.count) return;
    const where = { run: shown.parts[now.part], step, unit };
    const [down, across] = document.querySelectorAll(".live-heat i");
    down.style.left = `${(100 * (step + 0.5)) / labels().length}%`;
    across.style.top = `${(100 * (now.order.indexOf(unit) + 0.5)) / now.order.length}%`;
    const value = valueOn(now.name, where);
    const was = edits.length ? valueOn(now.name, { ...where, run: plain.parts[now.part] }) : value;
    byId("live-where").textContent = `step ${step + 1} of ${labels().length} reads ${quoted(labels()[step])} · ${now.name} of unit ${unit} is ${fixed(value, 3)}${was === value ? "" : `, was ${fixed(was, 3)}`}`;
    showDetails();
  };

  const go = (step) => {
    now.step = clamp(step, 0, labels().length - 1);
    show();
  };
  const choose = (change) => {
    Object.assign(now, change);
    if (!namesOf(current()).includes(now.name)) now.name = Object.keys(current().states).at(-1);
    now.unit = clamp(now.unit, 0, widthOf(now.name) - 1);
    if (plain) now.step = clamp(now.step, 0, Math.max(0, labels().length - 1));
    fill();
    if (plain) {
      arrange();
      paint();
      show();
    }
  };

  // Controls of the heat map.
  const part = element("select", { onchange: () => choose({ part: part.value }) });
  const name = element("select", { onchange: () => choose({ name: name.value }) });
  const unit = element("input", { type: "number", min: 0, step: 1 });
  const problem = element("output", { className: "live-warning" });
  problem.setAttribute("aria-live", "polite");
  checkNumber(unit, problem, "Unit", { limits: () => [0, widthOf(now.name) - 1], current: () => now.unit, chosen: (chosen) => choose({ unit: chosen }) });
  byId("live-choice").append(element("label", {}, "layer ", part), element("label", {}, "value ", name), element("label", {}, "unit ", unit),
    element("button", { type: "button", onclick: () => changes.append() }, "Change this unit"), problem);
  part.append(...directions.map(({ label }) => new Option(label.replace(/^encoder\./, ""), label)));
  const fill = () => {
    name.replaceChildren(...namesOf(current()).map((each) => new Option(each, each, false, each === now.name)));
    part.value = now.part;
    Object.assign(unit, { value: now.unit, max: widthOf(now.name) - 1 });
  };

  const heatMap = byId("live-heat");
  const onPointer = (event) => {
    const box = heatMap.getBoundingClientRect();
    const row = clamp(Math.floor(((event.clientY - box.top) / box.height) * now.order.length), 0, now.order.length - 1);
    const count = labels().length;
    now.step = clamp(Math.floor(((event.clientX - box.left) / box.width) * count), 0, count - 1);
    if (event.type === "click") choose({ unit: now.order[row] });
    else show();
  };
  for (const kind of ["pointermove", "click"]) heatMap.addEventListener(kind, (event) => plain.count && onPointer(event));
  heatMap.addEventListener("keydown", (event) => {
    const next = (by) => choose({ unit: now.order[clamp(now.order.indexOf(now.unit) + by, 0, now.order.length - 1)] });
    const moves = { ArrowLeft: () => go(now.step - 1), ArrowRight: () => go(now.step + 1), ArrowUp: () => next(-1), ArrowDown: () => next(1) };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  });
  byId("live-step").addEventListener("input", (event) => go(Number(event.target.value)));
  byId("live-back").addEventListener("click", () => go(now.step - 1));
  byId("live-forth").addEventListener("click", () => go(now.step + 1));
  byId("live-details").addEventListener("toggle", () => plain && show());

  // Lists steps of the run's data with similar states. The search compares the units that are active at the marked steps.
  const search = globalThis.glassgateSearch;
  const find = () => {
    const label = [now.part, now.part.replace(/^encoder\./, "")].find((each) => search.places.parts[each]);
    if (!label || !plain.count) {
      byId("live-found").textContent = "The search covers the layers of the encoder only.";
      byId("live-places").replaceChildren();
      return;
    }
    const source = search.embeddedPlaces(search.places, label);
    const [name] = Object.keys(current().states);
    const [width, count] = [widthOf(name), labels().length];
    const at = (unit, step) => shown.parts[now.part].values[name][step * width + unit];
    const [first, stop] = now.marked ?? [now.step, now.step + 1];
    const active = search.activeUnits(source, at, first, stop, 0, count);
    const units = active.length ? active : [now.unit];
    const pattern = units.map((each) => Array.from({ length: stop - first }, (_, k) => at(each, first + k)));
    const found = search.nearestPlaces(source, pattern, units, 12);
    const steps = stop - first === 1 ? `step ${stop}` : `steps ${first + 1} to ${stop}`;
    byId("live-found").textContent = `${steps}, ${labels().slice(first, stop).map(quoted).join(" ")}: ${name} of ${label}, ${units.length === 1 ? "unit" : "units"} ${units.join(", ")}`;
    byId("live-places").replaceChildren(...found.map((each) => search.placeRow(source, each, stop - first, units[0], search.series)));
  };
  byId("live-search").hidden = !search;
  byId("live-find").addEventListener("click", find);

  const valuesOf = (text, edited) => {
    const read = model.read(text, []);
    const label = edited.slice(0, edited.lastIndexOf("."));
    return { values: read.parts[label]?.values[edited.slice(label.length + 1)], count: read.count };
  };
  const changes = makeEdits(byId("live-edits"), {
    directions,
    count: () => plain.count,
    chosen: () => ({ name: `${now.part}.${now.name}`, unit: now.unit, steps: now.marked ? `${now.marked[0] + 1}-${now.marked[1]}` : "all" }),
    rangeOf: (edited) => {
      const label = edited.slice(0, edited.lastIndexOf("."));
      const short = edited.slice(label.length + 1);
      const { gate, peak } = rangeOf(plain.count ? plain.parts[label].values[short] : [1], plain.parts[label]?.direction.kinds[short]);
      return gate ? [0, 1] : [-Math.ceil(peak), Math.ceil(peak)];
    },
    valuesFor: model.kind === "text" ? valuesOf : null,
  }, () => answer());
  model.edits = () => changes.get();
  model.again = () => {
    input.shown(plain, shown, now);
    show();
  };
  const input = model.input(byId("live-input"), data.given, {
    typed: () => {
      answer();
      clearTimeout(timer);
      timer = setTimeout(() => {
        now.orders = {};
        choose({});
      }, 600);
    },
    moved: (step, marked) => {
      now.marked = marked;
      go(step);
    },
  });

  byId("live-lede").textContent = model.lede;
  byId("live-diagram").innerHTML = data.diagram;
  choose({ part: directions[0].label, name: directions[0].keeping[0] ?? Object.keys(directions[0].states).at(-1) });
  if (model.kind === "series") now.step = Infinity;
  byId("live").hidden = false;
  for (const item of document.querySelectorAll('a[href="#live"]')) item.parentNode.hidden = false;
  answer();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  byId("theme")?.addEventListener("click", paint);
  // The interface for tests and for the console of the browser.
  return { read: (given, changed = []) => model.read(given, changed), answer, changes, now, choose };
};
