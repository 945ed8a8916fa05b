// One or several cells on a signal that the user draws: states and gates over time, and a slider for each weight.
const STEPS = 60;
const SIGNAL_ENDS = [-1.2, 1.2];
const SIGNALS = {
  [say("signal.pulse")]: (t) => (t >= 8 && t < 12 ? 1 : 0),
  [say("signal.two_pulses")]: (t) => (t >= 6 && t < 10 ? 1 : t >= 34 && t < 38 ? -1 : 0),
  [say("signal.sine")]: (t) => Math.sin((2 * Math.PI * t) / 20),
  [say("signal.square")]: (t) => (Math.floor(t / 10) % 2 ? -0.8 : 0.8),
  [say("signal.noise")]: () => 2 * Math.random() - 1,
  [say("signal.zero")]: () => 0,
};

// A plot over all steps, with a line for each unit, a cursor, and the ends of the vertical axis. Its coordinates are 0 to 100.
const makePlot = (label, height) => {
  const svg = svgElement("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", class: "plot", role: "img", "aria-label": label });
  svg.style.height = `${height}px`;
  const zero = svgElement("path", { class: "zero" });
  const cursor = svgElement("path", { class: "cursor" });
  svg.append(zero, cursor);
  const lines = [];
  const [top, bottom] = [element("span"), element("span")];
  return {
    svg,
    ends: element("div", { className: "ends", ariaHidden: "true" }, top, bottom),
    draw(series, low, high) {
      [top.textContent, bottom.textContent] = [high, low].map((end) => fixed(end, Number.isInteger(end) ? 0 : 1));
      const y = (value) => 96 - (92 * (clamp(value, low, high) - low)) / (high - low);
      zero.setAttribute("d", `M0 ${y(0)}H100`);
      while (lines.length < series.length) {
        lines.push(svgElement("path", { class: `unit k${lines.length}` }));
        svg.insertBefore(lines.at(-1), cursor);
      }
      lines.forEach((line, u) => line.setAttribute("d", u < series.length ? [...series[u]].map((value, t) => `${t ? "L" : "M"}${((t + 0.5) * 100) / STEPS} ${y(value).toFixed(2)}`).join("") : ""));
    },
    mark: (step) => cursor.setAttribute("d", `M${((step + 0.5) * 100) / STEPS} 0V100`),
  };
};

// The numbers of some steps, below the plots.
const stepAxis = () => {
  const numbers = [1, 10, 20, 30, 40, 50, STEPS].map((step) => {
    const number = element("span", {}, step === STEPS ? say("words.step", { step }) : `${step}`);
    number.style.left = `${((step - 0.5) * 100) / STEPS}%`;
    return number;
  });
  return element("div", { className: "lane step-axis", ariaHidden: "true" }, element("b"), element("i"), element("div", {}, ...numbers));
};

// The signal: drawn with the pointer, or changed at the cursor by the keyboard.
const makeSignal = (container, now, changed) => {
  const plot = makePlot(say("signal.field"), 120);
  plot.svg.classList.add("signal");
  Object.assign(plot.svg, { tabIndex: 0 });
  plot.svg.setAttribute("role", "slider");
  const show = () => {
    plot.draw([now.signal], ...SIGNAL_ENDS);
    plot.mark(now.step);
    for (const [name, value] of [["valuenow", now.signal[now.step].toFixed(2)], ["valuemin", -1], ["valuemax", 1], ["valuetext", say("live.step_text", { step: now.step + 1, text: fixed(now.signal[now.step]) })]])
      plot.svg.setAttribute(`aria-${name}`, value);
  };
  let last = null;
  const at = (event) => {
    const box = plot.svg.getBoundingClientRect();
    return [clamp(Math.floor((STEPS * (event.clientX - box.left)) / box.width), 0, STEPS - 1), clamp(SIGNAL_ENDS[1] - ((SIGNAL_ENDS[1] - SIGNAL_ENDS[0]) * (event.clientY - box.top - 0.04 * box.height)) / (0.92 * box.height), -1, 1)];
  };
  const drawTo = (event) => {
    const [step, value] = at(event);
    const [fromStep, fromValue] = last ?? [step, value];
    const [low, high] = [Math.min(fromStep, step), Math.max(fromStep, step)];
    for (let t = low; t <= high; t++) now.signal[t] = fromStep === step ? value : fromValue + ((value - fromValue) * (t - fromStep)) / (step - fromStep);
    last = [step, value];
    now.step = step;
    changed();
  };
  plot.svg.addEventListener("pointerdown", (event) => {
    plot.svg.setPointerCapture(event.pointerId);
    drawTo(event);
  });
  plot.svg.addEventListener("pointermove", (event) => {
    if (last) drawTo(event);
    else if (event.pointerType === "mouse") now.go(at(event)[0]);
  });
  for (const kind of ["pointerup", "pointercancel"]) plot.svg.addEventListener(kind, () => (last = null));
  plot.svg.addEventListener("keydown", (event) => {
    const change = (by) => {
      now.signal[now.step] = clamp(now.signal[now.step] + by, -1, 1);
      changed();
    };
    const moves = { ArrowLeft: () => now.go(now.step - 1), ArrowRight: () => now.go(now.step + 1), ArrowUp: () => change(0.1), ArrowDown: () => change(-0.1) };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  });
  const buttons = Object.entries(SIGNALS).map(([name, value]) => element("button", { type: "button", onclick: () => {
    now.signal.forEach((_, t) => (now.signal[t] = value(t)));
    changed();
  } }, name));
  const lane = element("div", { className: "lane" }, element("b", {}, "x"), plot.ends, plot.svg);
  container.append(lane, stepAxis(), element("div", { className: "live-controls" }, element("span", { className: "live-note" }, say("signal.draw")), ...buttons));
  return { show };
};

// The group and the label of a weight: ["f", "from x"], ["f", "from h"] or ["f", "bias"].
const groupAndLabel = (name, { products }) => {
  for (const [product, parts] of Object.entries(products)) {
    const gate = product.replace(/_(pre|ih|hh)$/, "");
    if (name === `${product}_bias`) return [gate, say("product.bias")];
    const found = parts.find(({ weight }) => weight === name);
    if (found) return [gate, say("weights.from", { vector: found.vector.replace(/_prev$/, "") })];
  }
  return [say("weights.own"), name];
};

// Sliders for each weight, in a group for each gate.
const makeWeights = (container, direction, changed) => {
  const groups = new Map();
  for (const [name, array] of Object.entries(direction.weights)) {
    const [group, words] = groupAndLabel(name, direction);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push([words, array]);
  }
  container.replaceChildren(...[...groups].map(([group, arrays]) => {
    const rows = arrays.flatMap(([words, array]) => [...array.keys()].map((k) => {
      const columns = array.length / direction.units;
      const indices = direction.units === 1 ? "" : columns === 1 ? ` ${k}` : ` ${k % columns} → ${Math.floor(k / columns)}`;
      const readout = element("output", {}, fixed(array[k]));
      const slider = element("input", { type: "range", min: -4, max: 4, step: 0.05, value: array[k], oninput: () => {
        array[k] = Number(slider.value);
        readout.textContent = fixed(array[k]);
        changed();
      } });
      return element("label", { className: "weight" }, element("span", {}, `${words}${indices}`), slider, readout);
    }));
    return element("fieldset", {}, element("legend", {}, group), ...rows);
  }));
};

// One cell: its plots, diagram and weights.
const makeCell = (container, spec, now) => {
  const plots = new Map();
  const stack = element("div", { className: "plots" });
  const weights = element("div", { className: "weights" });
  const readout = new Map();
  const details = element("details", { className: "live-card", open: spec.alone }, element("summary", {}, element("h3", {}, say("weights.title"))), weights);
  const diagram = container.querySelector("figure");
  diagram.before(stack);
  container.append(details);
  const random = element("button", { type: "button", onclick: () => {
    for (const array of Object.values(direction.weights)) array.forEach((_, k) => (array[k] = 2 * (2 * Math.random() - 1)));
    showWeights();
    now.changed();
  } }, say("weights.random"));
  let [direction, run, products] = [null, null, element("div", { className: "live-products" })];
  details.before(element("details", { className: "live-card" }, element("summary", {}, element("h3", {}, say("product.title"))), products));
  const showWeights = () => makeWeights(weights, direction, now.changed);
  const choose = (units) => {
    direction = spec.sizes[units - 1].levels[0].directions[0];
    showWeights();
    weights.append(random);
    stack.replaceChildren();
    plots.clear();
    const names = [...Object.keys(direction.states).reverse(), ...direction.gates];
    for (const name of names) {
      const kind = Object.hasOwn(direction.states, name) ? "state" : "gate";
      const plot = makePlot(kind === "state" ? say("cell_page.state_plot", { name }) : say("cell_page.gate_plot", { name }), kind === "state" ? 84 : 46);
      readout.set(name, element("output"));
      stack.append(element("div", { className: `lane ${kind}` }, element("b", {}, name), plot.ends, plot.svg, readout.get(name)));
      plots.set(name, plot);
      plot.svg.addEventListener("pointermove", (event) => {
        const box = plot.svg.getBoundingClientRect();
        now.go(clamp(Math.floor((STEPS * (event.clientX - box.left)) / box.width), 0, STEPS - 1));
      });
    }
    stack.append(stepAxis());
  };
  const show = () => {
    for (const [name, plot] of plots) {
      plot.mark(now.step);
      const units = direction.values[name];
      readout.get(name).textContent = fixed(run.values[name][now.step * units + Math.min(now.unit, units - 1)]);
    }
    const where = { run, step: now.step, unit: Math.min(now.unit, direction.units - 1) };
    showWires(diagram, where);
    if (products.parentNode.open) showProducts(products, where, ["x"]);
  };
  products.parentNode.addEventListener("toggle", () => run && show());
  // Runs the cell on the signal. Returns the range of each gate and state.
  const update = () => {
    run = runDirection(direction, steps[direction.label], now.signal, STEPS);
    return [...plots.keys()].map((name) => [name, rangeOf(run.values[name], direction.kinds[name])]);
  };
  // Draws the plots. `peaks` are the largest values, by name, so that cells side by side have the same scale.
  const draw = (peaks) => {
    for (const [name, plot] of plots) {
      const units = direction.values[name];
      const series = Array.from({ length: units }, (_, u) => Float32Array.from({ length: STEPS }, (_, t) => run.values[name][t * units + u]));
      const wide = peaks.get(name);
      plot.draw(series, rangeOf(run.values[name], direction.kinds[name]).gate ? 0 : -wide, wide);
    }
    show();
  };
  return { choose, update, draw, show, get run() { return run; }, get direction() { return direction; } };
};

const liveCells = (data) => {
  const arrayOf = unpackWeights(data.weights);
  const now = { step: 20, unit: 0, signal: Float32Array.from({ length: STEPS }, (_, t) => SIGNALS[say("signal.two_pulses")](t)) };
  const updateAll = () => {
    signal.show();
    const peaks = new Map();
    for (const [name, { peak }] of cells.flatMap((cell) => cell.update())) peaks.set(name, Math.max(peaks.get(name) ?? 1, Math.ceil(peak)));
    for (const cell of cells) cell.draw(peaks);
    showStep();
  };
  now.changed = updateAll;
  now.go = (step) => {
    now.step = clamp(step, 0, STEPS - 1);
    signal.show();
    for (const cell of cells) cell.show();
    showStep();
  };
  const slider = byId("cell-step");
  const showStep = () => {
    slider.value = now.step;
    slider.setAttribute("aria-valuetext", say("words.step", { step: now.step + 1 }));
    byId("cell-now").textContent = clauses(say("words.step_of", { step: now.step + 1, total: STEPS }), `x = ${fixed(now.signal[now.step])}`);
  };
  const cells = withArrays(data.cells, arrayOf).map((spec, k) => makeCell(byId(`cell-${k}`), spec, now));
  const signal = makeSignal(byId("cell-signal"), now, updateAll);
  const unit = byId("cell-unit");
  const setUnits = (units) => {
    now.unit = Math.min(now.unit, units - 1);
    unit.replaceChildren(...Array.from({ length: units }, (_, u) => new Option(u, u, false, u === now.unit)));
    unit.parentNode.hidden = units === 1;
    byId("cell-key").replaceChildren(...(units === 1 ? [] : Array.from({ length: units }, (_, u) => element("span", {}, element("i", { className: `k${u}` }), say("words.unit", { unit: u })))));
    for (const cell of cells) cell.choose(units);
    updateAll();
  };
  byId("cell-units").addEventListener("change", (event) => setUnits(Number(event.target.value)));
  unit.addEventListener("change", () => {
    now.unit = Number(unit.value);
    now.go(now.step);
  });
  Object.assign(slider, { max: STEPS - 1, oninput: () => now.go(Number(slider.value)) });
  byId("cell-back").addEventListener("click", () => now.go(now.step - 1));
  byId("cell-forth").addEventListener("click", () => now.go(now.step + 1));
  byId("cell-live").hidden = false;
  byId("theme").addEventListener("click", toggleTheme);
  byId("cell-units").value = data.units;
  setUnits(data.units);
  return { now, cells, setUnits };
};
