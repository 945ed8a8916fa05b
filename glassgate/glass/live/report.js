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
    byId("live-timing").textContent = plain.count ? say("live.timing", { steps: stepsInWords(plain.count), time: Math.ceil(performance.now() - before) }) : say("live.empty");
    const full = model.kind === "text" && input.get().length >= MAX_CHARACTERS ? say("live.full", { count: MAX_CHARACTERS }) : "";
    const some = `${unknown.slice(0, 12).map(quoted).join(" ")}${unknown.length > 12 ? " …" : ""}`;
    byId("live-unknown").textContent = sentences(full, unknown.length ? say("live.unknown", { tokens: some }) : "");
    now.step = clamp(now.step, 0, Math.max(0, labels().length - 1));
    byId("live-step").max = Math.max(0, labels().length - 1);
    input.shown(plain, shown, now);
    byId("live-change").textContent = edits.length && plain.count ? describe() : "";
    byId("live-python").textContent = pythonOf(edits, model.python(input.get(), data.run, data.given));
    arrange();
    paint();
    show();
  };

  const describe = () => say("edits.effect", { edits: edits.map(describeEdit).join(say("words.semicolon")), effect: model.compare(plain, shown) });

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
    const [low, high] = range.gate ? [say("gates.closed"), say("gates.open")] : [fixed(-range.peak), fixed(range.peak)];
    const scale = byId("live-scale");
    scale.className = `scale ${range.gate ? "gate" : "signed"}`;
    [scale.firstChild.textContent, scale.lastChild.textContent] = [low, high];
    byId("live-heat").setAttribute("aria-label", say("live.activity_of", { name: now.name, direction: now.part, units: say("words.units", { count: now.order.length }), steps: stepsInWords(labels().length), low, high }));
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
    byId("live-step").setAttribute("aria-valuetext", plain.count ? say("live.step_text", { step: step + 1, text: labels()[step] }) : "");
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
    byId("live-where").textContent = [
      say("words.reads", { place: say("words.step_of", { step: step + 1, total: labels().length }), step: quoted(labels()[step]) }),
      clauses(say("live.value_is", { name: now.name, unit, value: fixed(value, 3) }), was === value ? "" : say("live.value_was", { value: fixed(was, 3) })),
    ].join(" · ");
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
  checkNumber(unit, problem, say("field.unit"), { limits: () => [0, widthOf(now.name) - 1], current: () => now.unit, chosen: (chosen) => choose({ unit: chosen }) });
  byId("live-choice").append(element("label", {}, say("bar.layer"), " ", part), element("label", {}, say("live.value"), " ", name), element("label", {}, say("bar.unit"), " ", unit),
    element("button", { type: "button", onclick: () => changes.append() }, say("live.change_unit")), problem);
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
      byId("live-found").textContent = say("search.encoder_only");
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
    const steps = stop - first === 1 ? say("words.step", { step: stop }) : say("words.step_range", { first: first + 1, last: stop });
    const text = labels().slice(first, stop).map(quoted).join(" ");
    byId("live-found").textContent = say("search.found", { steps, text, state: name, direction: label, count: units.length, units: listed(units) });
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
    chosen: () => ({ name: `${now.part}.${now.name}`, unit: now.unit, steps: now.marked ? `${now.marked[0] + 1}-${now.marked[1]}` : say("field.all") }),
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
  // The state in a link: the text or the series, the selected value, and the words in the fields of the changes.
  const restore = ({ input: given, part, name, unit, step, edits: words }) => {
    const direction = directions.find(({ label }) => label === part);
    const known = new Set(directions.flatMap((each) => namesOf(each).map((value) => `${each.label}.${value}`)));
    const fits = direction && namesOf(direction).includes(name) && Array.isArray(words) && words.every((edit) => known.has(edit.name));
    if (!fits || !input.set(given)) return false;
    now.orders = {};
    plain = model.read(input.get(), []);
    changes.restore(words);
    choose({ part, name, unit: Number.isInteger(unit) ? unit : 0, step: Number.isInteger(step) ? Math.max(0, step) : 0 });
    return true;
  };
  globalThis.glassgateLink?.("live", { get: () => ({ input: input.get(), part: now.part, name: now.name, unit: now.unit, step: now.step, edits: changes.fields() }), set: restore });
  // The interface for tests and for the console of the browser.
  return { read: (given, changed = []) => model.read(given, changed), answer, changes, now, choose };
};
