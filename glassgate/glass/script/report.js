// One run of a page: its elements, its cursor and its controls. `reports` contains all runs of the page, which share the step.
const report = (data, run, reports) => {
  const $ = (id) => document.getElementById(run ? `${id}-${run}` : id);
  const roots = [...document.querySelectorAll(`[data-run="${run}"]`)];
  const all = (selector) => roots.flatMap((root) => [...root.querySelectorAll(selector)]);
  const byDataId = (id) => all(`[data-id="${id}"]`)[0];
  const now = { step: 0, answer: 0, unit: 0, part: 0, shade: "" };
  const reading = readings(data, now);
  const { total, steps, value, passageOf, answerAt, contributions } = reading;
  const answerSpans = all(".answer + [dir] [data-a]");
  const stepSpans = new Map(all(".passage [data-s]").map((span) => [Number(span.dataset.s), span]));
  const paint = shading(data, reading, now, stepSpans, byDataId);

  const searching = all(".search:has(form)").map((section) => {
    const [form, output, list] = ["form", "output", "ol"].map((name) => section.querySelector(name));
    return { form, output, list, note: byDataId("places-note"), passage: byDataId("sequence"), steps: byDataId("steps"), units: byDataId("units") };
  })[0];
  const bands = all(".heat.time .pane").map((pane) => {
    const band = element("i", { className: "chosen-steps" });
    pane.append(band);
    return band;
  });
  const marks = marking(data, reading, now, stepSpans, searching, bands);

  const wires = all(".diagram .wire text.value").map((label) => ({ label, name: label.parentNode.dataset.name || "" }));
  let spanAtCursor = null;
  let highlighted = { key: "", dots: [] };
  // A heat map with two lines that cross at the cursor.
  const heatMap = (figure) => {
    const pane = figure.querySelector(".pane");
    const [down, across] = ["down", "across"].map((className) => element("i", { className }));
    pane.append(down, across);
    return { figure, pane, down, across, output: figure.querySelector("output"), passage: Number(figure.dataset.passage) };
  };
  const timeMaps = all(".heat.time").map(heatMap);
  const matrices = all(".heat.matrix").map(heatMap);
  const timePlots = all("svg[data-time]").map((svg) => {
    const [first, count, x1, x2, y1, y2] = svg.dataset.time.split(" ").map(Number);
    const path = svgElement("path", { class: "now" });
    svg.append(path);
    return { svg, path, first, count, x1, x2, y1, y2 };
  });

  // The sentence in a caption: the half-life or the saturation of the selected unit.
  const measureSentence = (part, measure, name) => {
    if (measure === "half_life") {
      const steps = part.half_life[name][now.unit];
      return steps === undefined ? "" : say("memory.of_unit", { unit: now.unit, half_life: steps === null ? say("words.infinite") : stepsInWords(steps) });
    }
    const [low, high] = part.saturation[name].map((each) => each[now.unit]);
    return low === undefined ? "" : say("saturation.of_unit", { unit: now.unit, low: percent(low), high: percent(high) });
  };

  const show = () => {
    const part = data.parts[now.part];
    if (spanAtCursor) spanAtCursor.classList.remove("on");
    spanAtCursor = stepSpans.get(now.step) || null;
    if (spanAtCursor) spanAtCursor.classList.add("on");
    for (const span of answerSpans) span.classList.toggle("on", Number(span.dataset.a) === now.answer && Number(span.dataset.p) === passageOf(now.step));
    paint();
    const k = passageOf(now.step);
    const where = data.steps.length > 1 ? say("search.place", { sequence: k + 1, step: now.step - data.starts[k] + 1 }) : say("words.step_of", { step: now.step + 1, total });
    const reads = say("words.reads", { place: where, step: quoted(steps[now.step]) });
    const answer = answerAt(now.step);
    $("now").textContent = answer ? clauses(reads, describeAnswer(answer)) : reads;
    $("wires").replaceChildren(
      ...Object.keys(part.values).map((name) => element("span", {}, `${name} `, element("b", {}, fixed(value(part, name, now.step, now.unit), 3)))),
    );
    for (const row of all(".wires tr")) {
      const name = row.firstChild.textContent;
      row.lastChild.textContent = part.values[name] ? short(value(part, name, now.step, now.unit)) : "";
    }
    for (const { label, name } of wires) {
      const v = value(part, name, now.step, now.unit);
      label.textContent = v === undefined ? "" : name === "x" ? `‖x‖ ${fixed(v)}` : fixed(v);
    }
    const x = `${(100 * (now.step + 0.5)) / total}%`;
    for (const { figure, down, across, output } of timeMaps) {
      if (figure.closest(".part").dataset.part !== part.label) continue;
      const name = figure.dataset.name;
      const units = part.values[name].units;
      const row = units === part.order.length ? part.order.indexOf(now.unit) : -1;
      down.style.left = x;
      across.style.display = row < 0 ? "none" : "block";
      across.style.top = `${(100 * (row + 0.5)) / units}%`;
      output.textContent = say("gates.at_cursor", { number: short(value(part, name, now.step, now.unit)) });
    }
    const row = contributions();
    for (const { figure, down, across, output, passage } of matrices) {
      const here = passage === k && row;
      for (const each of [down, across]) each.style.display = here ? "block" : "none";
      output.textContent = "";
      if (!here) continue;
      const [height, width] = data.connections[k].shape;
      down.style.left = `${(100 * (now.step - row.start + 0.5)) / width}%`;
      across.style.top = `${(100 * (row.row + 0.5)) / height}%`;
      if (height === 1) across.style.display = "none";
      const isAttention = figure.dataset.scale === "gate";
      const numbers = isAttention ? row.attention : row.numbers;
      const most = numbers.reduce((best, each, index) => (Math.abs(each) > Math.abs(numbers[best]) ? index : best), 0);
      const largest = { step: most + 1, text: quoted(steps[row.start + most]), number: short(numbers[most]) };
      output.textContent = isAttention ? say("connectivity.attends", largest) : say("connectivity.largest", largest);
    }
    for (const { path, first, count, x1, x2, y1, y2 } of timePlots) {
      const inside = now.step >= first && now.step < first + count;
      const cursorX = x1 + ((x2 - x1) * (now.step - first + 0.5)) / count;
      path.setAttribute("d", inside ? `M${cursorX} ${y1}V${y2}` : "");
    }
    if (highlighted.key !== `${now.part} ${now.unit}`) {
      for (const dot of highlighted.dots) dot.classList.remove("on");
      highlighted = { key: `${now.part} ${now.unit}`, dots: all(`.part.chosen [data-u="${now.unit}"]`) };
      for (const dot of highlighted.dots) dot.classList.add("on");
      for (const output of all(".part.chosen output[data-measure]")) output.textContent = measureSentence(part, output.dataset.measure, output.dataset.of);
    }
  };

  const scheduleShow = onFrame(show);
  const follow = (step) => {
    now.step = clamp(Math.round(step), 0, total - 1);
    scheduleShow();
  };
  const go = (step) => {
    follow(step);
    for (const other of reports) if (other !== self && other.starts.join() === data.starts.join()) other.follow(step);
  };
  const moveUnit = (by) => {
    const part = data.parts[now.part];
    choose(now.part, part.order[clamp(part.order.indexOf(now.unit) + by, 0, part.order.length - 1)]);
  };
  const choose = (part, unit = now.unit, name = null) => {
    now.part = part;
    now.unit = clamp(unit, 0, data.parts[part].units - 1);
    $("part").value = part;
    $("unit").value = now.unit;
    $("unit").max = data.parts[part].units - 1;
    all(".part").forEach((block) => block.classList.toggle("chosen", block.dataset.part === data.parts[part].label));
    const names = Object.keys(data.parts[part].values);
    const more = Object.entries(SHADES).filter(([key]) => key !== "?relevance" || data.relevances.length);
    const entries = [...names.map((each) => [each, each]), ...more];
    if (name) now.shade = name;
    marks.searchAgain();
    if (!entries.some(([key]) => key === now.shade)) now.shade = data.parts[part].states.at(-1);
    $("shade").replaceChildren(...entries.map(([key, words]) => new Option(words, key, false, key === now.shade)));
    scheduleShow();
  };

  // The pointer selects steps in the text and in pictures, and units by their dots.
  for (const [step, span] of stepSpans) {
    span.addEventListener("pointerenter", () => go(step));
    span.addEventListener("click", () => go(step));
  }
  for (const text of all(".passages"))
    text.addEventListener("pointermove", (event) => {
      const under = event.pointerType === "touch" && document.elementFromPoint(event.clientX, event.clientY);
      const span = under && under.closest("[data-s]");
      if (span) go(Number(span.dataset.s));
    });
  const selectAnswer = (number, passage) => {
    now.answer = number;
    go(passage === passageOf(now.step) ? now.step : data.starts[passage]);
  };
  for (const span of answerSpans)
    for (const kind of ["pointerenter", "click"]) span.addEventListener(kind, () => selectAnswer(Number(span.dataset.a), Number(span.dataset.p)));
  const next = () => {
    const k = passageOf(now.step);
    selectAnswer((now.answer + 1) % Math.max(1, data.answers[k].length), k);
  };
  const onPoint = (pane, moved) => {
    const handle = (event) => {
      const box = pane.getBoundingClientRect();
      moved((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height, event.type === "click");
    };
    pane.addEventListener("pointermove", handle);
    pane.addEventListener("click", handle);
  };
  for (const { figure, pane } of timeMaps)
    onPoint(pane, (x, y, clicked) => {
      const part = data.parts[now.part];
      const units = part.values[figure.dataset.name].units;
      if (clicked && units === part.order.length) choose(now.part, part.order[clamp(Math.floor(y * units), 0, units - 1)]);
      go(Math.floor(x * total));
    });
  for (const { passage, pane } of matrices)
    onPoint(pane, (x, y) => {
      const { shape, targets } = data.connections[passage];
      const target = targets[clamp(Math.floor(y * shape[0]), 0, shape[0] - 1)];
      const step = data.answers[passage][target][0];
      if (step === null) now.answer = target;
      go(data.starts[passage] + (step === null ? clamp(Math.floor(x * shape[1]), 0, shape[1] - 1) : step));
    });
  for (const { svg, first, count, x1, x2 } of timePlots)
    onPoint(svg, (x) => {
      const width = svg.viewBox.baseVal.width;
      go(first + clamp(Math.floor(((x * width - x1) / (x2 - x1)) * count), 0, count - 1));
    });
  // Dragging marks steps, and in a picture of gates also units. `stepAndRow` returns {step, row} for an event.
  const markOnDrag = (pane, stepAndRow) => {
    let from = null;
    pane.addEventListener("pointerdown", (event) => {
      from = event.button === 0 ? { x: event.clientX, y: event.clientY, ...stepAndRow(event) } : null;
    });
    // Without this, the browser would drag the picture or select text.
    for (const kind of ["mousedown", "dragstart"]) pane.addEventListener(kind, (event) => event.preventDefault());
    pane.addEventListener("pointermove", (event) => {
      if (!from || !(event.buttons & 1) || Math.hypot(event.clientX - from.x, event.clientY - from.y) < 6) return;
      const to = stepAndRow(event);
      const [low, high] = [from.row, to.row].sort((a, b) => a - b);
      marks.mark(from.step, to.step, from.row === undefined ? null : data.parts[now.part].order.slice(low, high + 1));
    });
  };
  for (const { figure, pane } of timeMaps)
    markOnDrag(pane, (event) => {
      const box = pane.getBoundingClientRect();
      const { order, values } = data.parts[now.part];
      const own = values[figure.dataset.name].units === order.length;
      const row = clamp(Math.floor(((event.clientY - box.top) / box.height) * order.length), 0, order.length - 1);
      return { step: clamp(Math.floor(((event.clientX - box.left) / box.width) * total), 0, total - 1), row: own ? row : undefined };
    });
  for (const { svg, first, count, x1, x2 } of timePlots)
    markOnDrag(svg, (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      return { step: first + clamp(Math.floor(((x - x1) / (x2 - x1)) * count), 0, count - 1) };
    });
  // Selecting text marks its steps, too.
  const stepUnder = (node) => {
    const span = (node.nodeType === Node.TEXT_NODE ? node.parentNode : node).closest?.("[data-s]");
    return span && stepSpans.get(Number(span.dataset.s)) === span ? Number(span.dataset.s) : null;
  };
  let selected = "";
  document.addEventListener("selectionchange", () => {
    const selection = document.getSelection();
    const nodes = selection.rangeCount && !selection.isCollapsed ? [selection.anchorNode, selection.focusNode] : [];
    const ends = nodes.map(stepUnder);
    // The event also comes when a field changes while the selection stays.
    const changed = selected !== ends.join();
    selected = ends.join();
    if (changed && ends.length && !ends.includes(null)) marks.mark(...ends);
  });

  // A finger is wider than a dot, so the nearest dot within 24 pixels is selected.
  const nearest = (event) => {
    const svg = event.target.closest("svg");
    if (!svg) return null;
    let [best, smallest] = [null, 24];
    for (const dot of svg.querySelectorAll("[data-u]")) {
      const box = dot.getBoundingClientRect();
      const distance = Math.hypot(event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2);
      if (distance < smallest) [best, smallest] = [dot, distance];
    }
    return best;
  };
  for (const root of roots)
    root.addEventListener("click", (event) => {
      const dot = event.target.closest("[data-u]") || nearest(event);
      if (dot) choose(now.part, Number(dot.dataset.u));
      const link = event.target.closest("[data-unit]");
      if (link) {
        const part = data.parts.findIndex((each) => each.label === link.dataset.part);
        choose(part, Number(link.dataset.unit), link.dataset.name);
      }
    });

  // Controls.
  data.parts.forEach((part, k) => $("part").append(new Option(part.label, k)));
  $("part").addEventListener("change", () => choose(Number($("part").value)));
  checkNumber($("unit"), $("problem"), say("field.unit"), { limits: () => [0, data.parts[now.part].units - 1], current: () => now.unit, chosen: (unit) => choose(now.part, unit) });
  $("shade").addEventListener("change", () => choose(now.part, now.unit, $("shade").value));
  $("previous-unit").addEventListener("click", () => moveUnit(-1));
  $("next-unit").addEventListener("click", () => moveUnit(1));
  $("previous-step").addEventListener("click", () => go(now.step - 1));
  $("next-step").addEventListener("click", () => go(now.step + 1));
  $("unit").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
    event.preventDefault();
    moveUnit(event.key === "ArrowUp" ? -1 : 1);
  });

  for (const svg of all("figure > svg")) addSaveButton(svg);

  const extend = (by) => go(marks.extend(by));
  const state = () => ({ part: data.parts[now.part].label, unit: now.unit, step: now.step, answer: now.answer, shade: now.shade });
  const restore = ({ part, unit, step, answer, shade }) => {
    const index = data.parts.findIndex(({ label }) => label === part);
    if (index < 0 || !isIndex(unit, data.parts[index].units) || !isIndex(step, total)) return false;
    if (isIndex(answer, data.answers[passageOf(step)].length)) now.answer = answer;
    choose(index, unit, String(shade));
    go(step);
    return true;
  };
  const self = { state, restore, follow, extend, clear: marks.clear, starts: data.starts, go: (by) => go(now.step + by), moveUnit, layer: () => choose((now.part + 1) % data.parts.length), next, roots };
  const first = data.follows[0];
  const part = first ? data.parts.findIndex((each) => each.label === first[1]) : 0;
  choose(part, first ? first[2] : 0, first ? first[3] : null);
  show();
  return self;
};
