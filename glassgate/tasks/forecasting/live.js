// Forecasting: all steps of the horizon at once, step by step, or by segments, from a past that the reader drags.
models.forecasting = (info, run) => {
  const { back, horizon, size, known, past, vector } = info;
  const counts = { known: known.length / (back + horizon), past: past.length / back };
  const softplus = (value) => (value > 20 ? value : Math.log1p(Math.exp(value)));

  // The look-back window, normalised by its own values.
  const windowOf = (values) => {
    const own = values.map((value) => (value - info.shift) / info.scale);
    let [center, spread] = [0, 1];
    if (info.head !== "negative-binomial" && info.normalize === "last") center = own.at(-1);
    if (info.head !== "negative-binomial" && info.normalize === "window") {
      center = sum(own) / own.length;
      spread = Math.sqrt(sum(own.map((value) => (value - center) ** 2)) / own.length + 1e-5);
    }
    return { values: own.map((value) => (value - center) / spread), center, spread };
  };
  const rowOf = (array, count, t) => array.subarray(t * count, (t + 1) * count);

  // The value and the quantiles of a step, in the series' own units, from the raw outputs of the network.
  const forecastOf = (raw, { center, spread }) => {
    const own = (value) => value * info.scale + info.shift;
    if (info.head === "quantiles") {
      const sorted = [...raw].map((value) => value * spread + center).sort((a, b) => a - b);
      return { value: own(sorted[info.median]), quantiles: sorted.map(own) };
    }
    if (info.head === "gaussian") {
      const [mean, deviation] = [raw[0] * spread + center, (softplus(raw[1]) + 1e-6) * spread];
      return { value: own(mean), quantiles: info.levels.map((_, k) => own(mean + deviation * info.deviates[k])) };
    }
    if (info.head === "student-t") return { value: own(raw[1] * spread + center) };
    if (info.head === "negative-binomial") return { value: own(softplus(raw[0]) + 1e-6) };
    return { value: own(raw[0] * spread + center) };
  };

  const kinds = {
    direct(window, edits) {
      const x = concatenate(window.values.map((value, t) => concatenate([[value], rowOf(past, counts.past, t), rowOf(known, counts.known, t), vector])));
      const { parts } = run(info.encoder, x, back, { edits });
      const last = finalOutputs(info.encoder, parts);
      const fromPast = info.linear && linear(info.linear, Float32Array.from(window.values), 1);
      const outputs = linear(info.steps, last, 1).map((value, k) => value + (fromPast ? fromPast[k] : 0));
      const raw = rowsOf(outputs, horizon).map((row, k) => {
        if (!info.ahead) return row;
        const hidden = linear(info.ahead[0], concatenate([last, rowOf(known, counts.known, back + k)]), 1).map((value) => Math.max(0, value));
        const more = linear(info.ahead[1], hidden, 1);
        return row.map((value, q) => value + more[q]);
      });
      return { raw, parts, count: back };
    },
    // Each step reads the previous value, in the horizon the true one, as in the report.
    recursive(window, edits, target) {
      const values = [...window.values, ...target.map((value) => ((value - info.shift) / info.scale - window.center) / window.spread)];
      const count = back + horizon - 1;
      const x = concatenate(values.slice(0, -1).map((value, t) => concatenate([[value], rowOf(known, counts.known, t + 1), vector])));
      const { output, parts } = run(info.encoder, x, count, { edits });
      return { raw: rowsOf(linear(info.steps, output, count), count).slice(back - 1), parts, count };
    },
    segments(window, edits) {
      const width = info.segment;
      const cut = (steps) => {
        const rows = [...steps];
        while (rows.length % width) rows.push(rows.at(-1));
        return Array.from({ length: rows.length / width }, (_, k) => {
          const part = rows.slice(k * width, (k + 1) * width);
          return Float32Array.from(part[0].length ? Array.from(part[0]).flatMap((_, c) => part.map((row) => row[c])) : []);
        });
      };
      const segments = cut(window.values.map((value, t) => concatenate([[value], rowOf(past, counts.past, t), rowOf(known, counts.known, t)])));
      const count = segments.length;
      const x = linear(info.embed[0], concatenate(segments), count).map((value) => Math.max(0, value));
      const { parts } = run(info.encoder, x, count, { edits });
      const start = Object.fromEntries(Object.entries(parts).map(([label, { last }]) => [label, last]));
      const ahead = counts.known ? cut(Array.from({ length: horizon }, (_, k) => rowOf(known, counts.known, back + k))) : [];
      const raw = rowsOf(info.places, info.places.length / (info.hidden - vector.length)).flatMap((place, k) => {
        let query = concatenate([place, vector]);
        if (ahead.length) {
          const more = linear(info.ahead, ahead[k], 1);
          query = query.map((value, u) => value + more[u]);
        }
        const { output } = run(info.encoder, query, 1, { edits, start });
        return rowsOf(linear(info.steps, output, 1), width);
      });
      return { raw: raw.slice(0, horizon), parts, count };
    },
  };

  const read = (rows, edits) => {
    const values = rows.map((row) => row[0]);
    const window = windowOf(values);
    const { raw, parts, count } = kinds[info.model](window, edits, info.target);
    const steps = raw.map((row) => forecastOf(row, window));
    const quantiles = steps[0].quantiles ? steps.map((step) => step.quantiles) : null;
    const label = (t) => (info.model === "segments" ? say("live.values", { first: t * info.segment + 1, last: Math.min(back, (t + 1) * info.segment) }) : fixed([...values, ...info.target][t]));
    return {
      count, parts, labels: Array.from({ length: count }, (_, t) => label(t)), answers: [], numbers: steps.map(({ value }) => value),
      names: steps.map((_, k) => info.times[k] ?? say("live.ahead", { steps: k + 1 })), forecast: { values: steps.map(({ value }) => value), quantiles },
    };
  };
  return {
    ...seriesModel({ title: () => (info.model === "recursive" ? say("live.recursive_forecast") : say("live.forecast")) }),
    task: "forecasting",
    lede: say("lede.forecasting"),
    encoder: info.encoder,
    read,
  };
};
