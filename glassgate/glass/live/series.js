// A series as a plot whose values can be dragged, and its forecast with a band for each pair of quantiles.
const seriesModel = ({ title }) => ({
  kind: "series",
  input(container, given, listeners) {
    const rows = given.rows.map((row) => [...row]);
    const channels = rows[0].length;
    const total = rows.length + (given.target?.length ?? 0);
    const [width, height, edge, left, below] = [900, 250, 8, 56, 26];
    const svg = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, class: "live-series", tabindex: 0, role: "slider", "aria-label": say("series.field") });
    let channel = 0;
    let step = rows.length - 1;
    let [plain, shown] = [null, null];
    const names = given.names ?? rows[0].map((_, k) => say("words.channel", { number: k + 1 }));
    const choice = element("select", { onchange: () => { channel = Number(choice.value); draw(); } }, ...names.map((name, k) => new Option(name, k)));
    const reset = element("button", { type: "button", onclick: () => {
      given.rows.forEach((row, t) => (rows[t] = [...row]));
      listeners.typed();
    } }, say("series.undo"));
    const readout = element("output");
    const key = element("p", { className: "key" });
    container.append(key, svg, element("div", { className: "live-controls" }, ...(channels > 1 ? [element("label", {}, say("series.channel"), " ", choice)] : []), reset, element("span", { className: "live-note" }, say("series.drag")), readout));

    const x = (t) => left + ((t + 0.5) * (width - left - edge)) / total;
    const range = () => {
      const forecasts = [plain, shown].flatMap((each) => (each?.forecast ? [...each.forecast.values, ...(each.forecast.quantiles ?? []).flat()] : []));
      const every = [...given.rows.map((row) => row[channel]), ...rows.map((row) => row[channel]), ...(given.target ?? []), ...forecasts].filter(Number.isFinite);
      const [low, high] = [Math.min(...every), Math.max(...every)];
      const pad = 0.08 * (high - low || 1);
      return [low - pad, high + pad];
    };
    let scale = [0, 1];
    const y = (value) => height - below - ((value - scale[0]) / (scale[1] - scale[0])) * (height - edge - below);
    const path = (values, first = 0) => values.map((value, k) => `${k ? "L" : "M"}${x(first + k).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const pathElement = (kind, d) => svgElement("path", { class: kind, d });
    const label = (words, x, y, anchor) => svgElement("text", { x, y, "text-anchor": anchor }, words);
    // Lines and labels of round values, and the numbers of some steps.
    const axis = () => [
      ...roundNumbers(...scale, 4).flatMap((value) => [pathElement("grid", `M${left} ${y(value)}H${width}`), label(withMinus(String(value)), left - 6, y(value) + 4, "end")]),
      ...roundNumbers(1, total, 8).filter(Number.isInteger).map((step, k) => label(k ? String(step) : say("words.step", { step }), x(step - 1), height - 4, "middle")),
    ];
    const draw = () => {
      scale = range();
      const past = rows.map((row) => row[channel]);
      const original = given.rows.map((row) => row[channel]);
      const dragged = past.some((value, t) => value !== original[t]);
      const parts = [...axis(), ...(dragged ? [pathElement("original", path(original))] : []), pathElement("past", path(past))];
      const legend = [...(dragged ? [["original", say("series.original")]] : []), ["past", dragged ? say("series.yours") : names[channel]]];
      const add = (kind, words, values) => {
        parts.push(pathElement(kind, path([past.at(-1), ...values], rows.length - 1)));
        legend.push([kind, words]);
      };
      if (given.target && channel === 0) add("target", say("series.true"), given.target);
      for (const [result, kind] of [[plain, "plain"], [shown, "forecast"]]) {
        if (!result?.forecast || channel || (result === plain && shown === plain && kind === "plain")) continue;
        const { values, quantiles } = result.forecast;
        const bands = quantiles && kind === "forecast" ? Math.floor(quantiles[0].length / 2) : 0;
        if (bands) legend.push(["band", say("series.intervals", { count: bands })]);
        for (let k = 0; k < bands; k++) {
          const [low, high] = [k, quantiles[0].length - 1 - k].map((q) => quantiles.map((row) => row[q]));
          const back = path(low, rows.length).slice(1).split("L").reverse().join("L");
          parts.push(pathElement("band", `${path(high, rows.length)}L${back}Z`));
        }
        add(kind, kind === "plain" ? say("series.forecast_before") : say("series.forecast"), values);
      }
      key.replaceChildren(...legend.map(([kind, words]) => element("span", {}, element("i", { className: kind }), words)));
      parts.push(pathElement("cursor", `M${x(step)} 0V${height}`));
      svg.replaceChildren(...parts);
      const value = say("live.step_text", { step: step + 1, text: fixed(past[step]) });
      svg.setAttribute("aria-valuetext", value);
      svg.setAttribute("aria-valuenow", past[step]);
      readout.textContent = value;
    };
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      const t = Math.floor(((((event.clientX - box.left) / box.width) * width - left) / (width - left - edge)) * total);
      const value = scale[0] + ((height - below - ((event.clientY - box.top) / box.height) * height) / (height - edge - below)) * (scale[1] - scale[0]);
      return [clamp(t, 0, rows.length - 1), value];
    };
    let dragging = false;
    const drag = (event) => {
      const [t, value] = at(event);
      step = t;
      if (dragging) rows[t][channel] = value;
      if (dragging) listeners.typed();
      listeners.moved(Math.floor(t / (given.rowsPerStep ?? 1)), null);
    };
    svg.addEventListener("pointerdown", (event) => {
      svg.setPointerCapture(event.pointerId);
      dragging = true;
      drag(event);
    });
    svg.addEventListener("pointermove", (event) => (dragging || event.pointerType === "mouse") && drag(event));
    for (const kind of ["pointerup", "pointercancel"]) svg.addEventListener(kind, () => (dragging = false));
    svg.addEventListener("keydown", (event) => {
      const change = (by) => {
        rows[step][channel] += by * (scale[1] - scale[0]);
        listeners.typed();
      };
      const go = (by) => {
        step = clamp(step + by, 0, rows.length - 1);
        listeners.moved(Math.floor(step / (given.rowsPerStep ?? 1)), null);
      };
      const moves = { ArrowLeft: () => go(-1), ArrowRight: () => go(1), ArrowUp: () => change(0.02), ArrowDown: () => change(-0.02) };
      if (!moves[event.key]) return;
      event.preventDefault();
      moves[event.key]();
    });
    return {
      get: () => rows,
      // Replaces the values by those of a link. Returns whether they fit the series.
      set: (values) => {
        const fits = Array.isArray(values) && values.length === rows.length && values.every((row) => row?.length === channels && row.every(Number.isFinite));
        if (fits) values.forEach((row, t) => (rows[t] = [...row]));
        return fits;
      },
      mark: (chosen) => {
        const rowsPerStep = given.rowsPerStep ?? 1;
        if (Math.floor(step / rowsPerStep) !== chosen) step = clamp(chosen * rowsPerStep, 0, rows.length - 1);
        draw();
      },
      shown: (was, now) => {
        [plain, shown] = [was, now];
        draw();
      },
    };
  },
  answers(container, plain, shown, step) {
    if (!shown.numbers) return showAnswers(container, plain, shown, step, (answer) => title(answer, plain));
    showNumbers(container, plain, shown, title(null, plain));
  },
  compare: (plain, shown) => (shown.numbers ? compareNumbers(plain, shown) : compareAnswers(plain, shown)),
  python: (rows, run, given) => {
    const dragged = rows.some((row, t) => row.some((value, channel) => value !== given.rows[t][channel]));
    const setup = pythonSetup(run, ["from glassgate.tasks.progress import Progress", run.file === "" ? "from glassgate.tasks.report.study import excerpts_of_run" : "from glassgate.tasks.report.study import excerpts_of_file", ...(run.file === "" ? ["from glassgate.tasks.runs import Run"] : [])]);
    const excerpt = run.file === "" ? `excerpts_of_run(task, Progress(), Run.open(${JSON.stringify(run.path)}).metrics())[0]` : `excerpts_of_file(task, ${JSON.stringify(run.file)}, Progress())[0]`;
    const own = dragged ? [`rows = ${JSON.stringify(rows)}`] : [];
    return { setup: [...setup, `excerpt = ${excerpt}`, ...own], call: `print(ask(task, excerpt${dragged ? ", rows" : ""}))` };
  },
});

const showNumbers = (container, plain, shown, title) => {
  const rows = shown.numbers.map((value, k) => [shown.names?.[k] ?? `${k + 1}`, value, plain.numbers[k]]);
  const cells = rows.slice(0, 24).map(([name, value, was]) => element("tr", {}, element("th", {}, name), element("td", { className: "num" }, withMinus(value.toPrecision(5))), element("td", { className: "num" }, shown === plain ? "" : say("series.was", { number: withMinus(was.toPrecision(5)) }))));
  container.replaceChildren(element("p", { className: "live-note" }, title), element("table", {}, element("tbody", {}, ...cells)));
};

const compareNumbers = (plain, shown) => {
  const moves = [...shown.numbers].map((value, k) => value - plain.numbers[k]);
  if (moves.some(Number.isNaN)) return OVERFLOW;
  const most = argmax(moves.map(Math.abs));
  return say("change.numbers", { mean: fixed(sum(moves.map(Math.abs)) / moves.length, 3), name: shown.names?.[most] ?? most + 1, from: fixed(plain.numbers[most], 3), to: fixed(shown.numbers[most], 3) });
};
