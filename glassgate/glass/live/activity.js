// The heat map of a gate or state: a row for each unit, a column for each step.
const COLOURS = { light: { paper: [253, 253, 251], high: [212, 103, 15], low: [42, 120, 196], gate: [11, 127, 115] },
  dark: { paper: [27, 32, 38], high: [240, 138, 60], low: [98, 168, 238], gate: [54, 184, 168] } };

// The range of the colours: if `gate`, 0 to 1 in one colour; otherwise from -peak to peak, with a colour for each sign.
const rangeOf = (values, kind) => {
  let peak = 1e-9;
  for (let k = 0; k < values.length; k++) peak = Math.max(peak, Math.abs(values[k]));
  const gate = kind === "gate" && peak <= 1;
  return { gate, peak: gate ? 1 : peak };
};

// An order of the units in which similar units are adjacent.
const orderOf = (values, units) => {
  const count = values.length / units;
  const rows = Array.from({ length: units }, (_, u) => Float32Array.from({ length: count }, (_, t) => values[t * units + u]));
  if (units > 256 || !count) return [...rows.keys()];
  const squaredDistance = (a, b) => {
    let total = 0;
    for (let k = 0; k < a.length; k++) total += (a[k] - b[k]) * (a[k] - b[k]);
    return total;
  };
  const remaining = new Set(rows.keys());
  const order = [0];
  remaining.delete(0);
  while (remaining.size) {
    const last = rows[order.at(-1)];
    let [best, least] = [-1, Infinity];
    for (const unit of remaining) {
      const distance = squaredDistance(last, rows[unit]);
      if (distance < least) [best, least] = [unit, distance];
    }
    order.push(best);
    remaining.delete(best);
  }
  return order;
};

const paintHeat = (canvas, values, units, order, kind) => {
  const count = Math.max(1, values.length / units);
  const { paper, high, low, gate } = COLOURS[isDark() ? "dark" : "light"];
  const range = rangeOf(values, kind);
  Object.assign(canvas, { width: count, height: units });
  const pixels = new ImageData(count, units);
  order.forEach((unit, row) => {
    for (let t = 0; t < count; t++) {
      const fraction = clamp(values[t * units + unit] / range.peak, -1, 1);
      const ink = range.gate ? gate : fraction >= 0 ? high : low;
      const at = 4 * (row * count + t);
      for (let k = 0; k < 3; k++) pixels.data[at + k] = paper[k] + Math.abs(fraction) * (ink[k] - paper[k]);
      pixels.data[at + 3] = 255;
    }
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  canvas.style.height = `${clamp(units * 6, 60, 260)}px`;
  return range;
};
