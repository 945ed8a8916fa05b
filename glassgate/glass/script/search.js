// Searches for the steps at which the states of some units are most similar to those at the marked steps (as in LSTMVis).
// A unit is active if its state differs from its mean by more than this many standard deviations.
const ACTIVE = 1;
const MAX_UNITS = 8;

const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / Math.max(1, numbers.length);

// The sequences to search, {starts, texts, numbers, units, value(unit, t), mean, deviation}, from the data of the page.
const embeddedPlaces = (places, label) => {
  const { low, spacing, mean, deviation, levels } = places.parts[label];
  const starts = [0];
  for (const text of places.texts) starts.push(starts.at(-1) + text.length);
  const width = Math.ceil(starts.at(-1) / 2);
  const { numbers } = unpack(levels);
  const value = (unit, t) => low[unit] + spacing[unit] * ((numbers[unit * width + (t >> 1)] >> (4 * (t & 1))) & 15);
  return { starts, texts: places.texts, numbers: places.numbers, units: low.map((_, unit) => unit), value, mean, deviation };
};

// The sequences to search if the page embeds none: its own passages.
const ownPlaces = (data, part, value) => {
  const [name] = part.states;
  const total = data.starts.at(-1);
  const units = part.shown.filter((unit) => unit < part.values[name].units);
  const [centres, deviations] = [[], []];
  for (const unit of units) {
    const numbers = Array.from({ length: total }, (_, step) => value(part, name, step, unit));
    centres[unit] = mean(numbers);
    deviations[unit] = Math.sqrt(mean(numbers.map((each) => (each - centres[unit]) ** 2)));
  }
  return { starts: data.starts, texts: data.steps, numbers: data.steps.map((_, k) => k), units, mean: centres, deviation: deviations,
    value: (unit, step) => value(part, name, step, unit) };
};

// The units that are active at the marked steps first <= t < stop. Those that are inactive at both neighbouring steps, within
// the sequence start <= t < end, come first.
const activeUnits = ({ units, mean, deviation }, at, first, stop, start, end) => {
  const scaled = (unit, step) => (at(unit, step) - mean[unit]) / Math.max(1e-6, deviation[unit]);
  const found = [];
  for (const unit of units) {
    const inRange = Array.from({ length: stop - first }, (_, k) => scaled(unit, first + k));
    const least = Math.max(Math.min(...inRange), -Math.max(...inRange));
    if (!(least > ACTIVE)) continue;
    const sign = Math.sign(inRange[0]);
    const neighbours = [first - 1, stop].filter((step) => step >= start && step < end).map((step) => sign * scaled(unit, step));
    found.push({ unit, rank: least + (Math.max(0, ...neighbours) < ACTIVE ? 1e3 : 0) });
  }
  return found.sort((a, b) => b.rank - a.rank).slice(0, MAX_UNITS).map(({ unit }) => unit);
};

// The closest windows that do not overlap, {sequence, at, start, distance, closer}. `at` is an index into the steps of all
// sequences, `start` one into the steps of `sequence`. `closer` is the fraction of windows that are at least as close.
const nearestPlaces = ({ starts, value, deviation }, pattern, units, most, skipped = null) => {
  const length = pattern[0].length;
  const found = [];
  const rows = units.map((unit) => {
    const size = Math.max(1e-6, deviation[unit]);
    return Float32Array.from({ length: starts.at(-1) }, (_, t) => value(unit, t) / size);
  });
  const marked = pattern.map((row, k) => row.map((each) => each / Math.max(1e-6, deviation[units[k]])));
  for (let sequence = 0; sequence + 1 < starts.length; sequence++) {
    for (let at = starts[sequence]; at + length <= starts[sequence + 1]; at++) {
      if (skipped && at < skipped[1] && at + length > skipped[0]) continue;
      let sum = 0;
      for (let u = 0; u < rows.length; u++) {
        for (let k = 0; k < length; k++) sum += (rows[u][at + k] - marked[u][k]) ** 2;
      }
      found.push({ sequence, at, distance: Math.sqrt(sum / (length * rows.length)) });
    }
  }
  found.sort((a, b) => a.distance - b.distance || a.at - b.at);
  const chosen = [];
  for (const each of found) {
    if (chosen.length === most) break;
    if (chosen.every(({ at }) => Math.abs(at - each.at) >= length)) chosen.push(each);
  }
  return chosen.map(({ sequence, at, distance }) => {
    const closer = found.filter((other) => other.distance <= distance).length / found.length;
    return { sequence, at, start: at - starts[sequence], distance, closer };
  });
};
