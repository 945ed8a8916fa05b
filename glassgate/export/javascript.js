// Runs layers on Float32Array. `steps` holds the generated function of each direction, which computes one step.
// Runs at twice the speed of Math.tanh. The relative error is below 1e-12.
const tanh = (x) => (Math.abs(x) < 1e-3 ? x * (1 - (x * x) / 3) : 1 - 2 / (1 + Math.exp(2 * x)));

// In JavaScript, 1 to the power of NaN or infinity is NaN.
const power = (x, y) => (x === 1 || (x === -1 && Math.abs(y) === Infinity) ? 1 : x ** y);

// Multiplies a matrix (rows, columns) by the elements of a vector from `start` on. Writes the result to `out` from `at` on.
// With several heads, each block of rows reads its own part of the vector. The loop computes four rows at a time, so that
// it reads the vector only once for four rows.
const multiply = (out, at, rows, matrix, columns, vector, start = 0, heads = 1) => {
  const perHead = rows / heads;
  for (let head = 0; head < heads; head++) {
    const first = start + head * columns;
    const end = (head + 1) * perHead;
    let row = head * perHead;
    for (; row + 3 < end; row += 4) {
      let [a, b, c, d] = [0, 0, 0, 0];
      let index = row * columns;
      for (let k = first; k < first + columns; k++, index++) {
        const value = vector[k];
        a += matrix[index] * value;
        b += matrix[index + columns] * value;
        c += matrix[index + 2 * columns] * value;
        d += matrix[index + 3 * columns] * value;
      }
      out[at + row] = a;
      out[at + row + 1] = b;
      out[at + row + 2] = c;
      out[at + row + 3] = d;
    }
    for (; row < end; row++) {
      let total = 0;
      for (let k = 0; k < columns; k++) total += matrix[row * columns + k] * vector[first + k];
      out[at + row] = total;
    }
  }
};

// Returns the index of the first equal row for each row of (count, width). Texts have many equal rows, because tokens repeat.
const firstEqual = (rows, width, count) => {
  const seen = new Map();
  return Int32Array.from({ length: count }, (_, t) => {
    let key = 0;
    for (let k = 0; k < width; k++) key += rows[t * width + k] * (k + 1);
    const earlier = seen.get(key);
    if (earlier === undefined) seen.set(key, t);
    else if (rows.subarray(t * width, (t + 1) * width).every((value, k) => value === rows[earlier * width + k])) return earlier;
    return t;
  });
};

// Converts the bits of a float16 number: a sign, five bits of exponent, and ten bits of fraction.
const fromHalf = (bits) => {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 0) return sign * 2 ** -24 * fraction;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * 2 ** (exponent - 15) * (1 + fraction / 1024);
};

// Unpacks the weights of a page. Returns a function that finds an array by its address {at, shape}.
const unpackWeights = ({ bits, base64 }) => {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const all = bits === 32 ? new Float32Array(bytes.buffer) : Float32Array.from(new Uint16Array(bytes.buffer), fromHalf);
  return ({ at, shape }) => all.subarray(at, at + shape.reduce((product, extent) => product * extent, 1));
};

const isAddress = (entry) => Boolean(entry) && Array.isArray(entry.shape);

// Returns a description in which the addresses of arrays are replaced by the arrays.
const withArrays = (entry, arrayOf) => {
  if (isAddress(entry)) return arrayOf(entry);
  if (Array.isArray(entry)) return entry.map((each) => withArrays(each, arrayOf));
  if (entry === null || typeof entry !== "object") return entry;
  return Object.fromEntries(Object.entries(entry).map(([key, each]) => [key, withArrays(each, arrayOf)]));
};

// Returns a function of the step that gives a factor and a replacement for each gate and state, as `gg.edit` defines them.
// An edit {name, kind: "hold" | "scale" | "replace", value, values, units, from, to} applies to the steps from <= t < to.
const editsOf = (direction, edits) => {
  const names = [...new Set([...direction.gates, ...Object.keys(direction.states)])];
  const width = (name) => (Object.hasOwn(direction.states, name) ? direction.states[name] : direction.units);
  const own = edits.filter((edit) => names.some((name) => edit.name === `${direction.label}.${name}`));
  const plain = {};
  for (const name of names) {
    plain[`scale_${name}`] = new Float32Array(width(name)).fill(1);
    plain[`replacement_${name}`] = new Float32Array(width(name)).fill(Infinity);
  }
  if (!own.length) return () => plain;
  const cache = new Map([["", plain]]);
  return (t) => {
    const active = own.filter(({ from, to }) => t >= (from ?? 0) && t < (to ?? Infinity));
    const isPerStep = active.some(({ kind }) => kind === "replace");
    const key = active.map((edit) => own.indexOf(edit)).join();
    if (!isPerStep && cache.has(key)) return cache.get(key);
    const changed = { ...plain };
    for (const { name, kind, value, values, units } of active) {
      const short = name.slice(direction.label.length + 1);
      const scale = (changed[`scale_${short}`] = changed[`scale_${short}`].slice());
      const replacement = (changed[`replacement_${short}`] = changed[`replacement_${short}`].slice());
      for (const u of units ?? scale.keys()) {
        if (kind === "hold") replacement[u] = value;
        else if (kind === "replace") replacement[u] = values[t * scale.length + u];
        else {
          scale[u] *= value;
          if (replacement[u] < Infinity) replacement[u] *= value;
        }
      }
    }
    if (!isPerStep) cache.set(key, changed);
    return changed;
  };
};

// Compares the input with that of an earlier run. Returns {same, shift}: the number of equal steps, counted from the step
// that the direction reads first, and the index of an equal step in the earlier run minus its index in this run.
const sameSteps = (direction, x, count, earlier) => {
  const { inputs, reverse } = direction;
  const earlierCount = earlier.x.length / inputs;
  const shift = reverse ? earlierCount - count : 0;
  let same = 0;
  for (; same < Math.min(count, earlierCount); same++) {
    const t = reverse ? count - 1 - same : same;
    for (let k = 0; k < inputs; k++) if (x[t * inputs + k] !== earlier.x[(t + shift) * inputs + k]) return { same, shift };
  }
  return { same, shift };
};

// Computes the hoisted products, which depend only on the input, for the steps from <= t < to. Returns an object with an
// array (count, units) for the name of each matrix.
const inputProducts = (direction, x, count, from, to) => {
  const { inputs, weights } = direction;
  const equal = firstEqual(x.subarray(from * inputs, to * inputs), inputs, to - from);
  const productsOf = {};
  for (const { weight, units } of Object.values(direction.products).flat().filter(({ hoisted }) => hoisted)) {
    const products = (productsOf[weight] = new Float32Array(count * units));
    equal.forEach((earlier, k) => {
      const [t, equalStep] = [from + k, from + earlier];
      if (t === equalStep) multiply(products, t * units, units, weights[weight], inputs, x, t * inputs);
      else products.copyWithin(t * units, equalStep * units, (equalStep + 1) * units);
    });
  }
  return productsOf;
};

// Allocates memory for the products of one step that are not hoisted.
const scratchFor = ({ products }) =>
  Object.fromEntries(Object.values(products).flat().filter(({ hoisted }) => !hoisted).map(({ weight, units }) => [weight, new Float64Array(units)]));

// Runs one direction on a sequence `x` of `count` steps. Returns the values of all steps, (steps, units) each, and the
// states before the first and after the last step. Steps that `sameSteps` counts are copied from `earlier`, a run without edits.
const runDirection = (direction, step, x, count, edits = [], start = null, earlier = null) => {
  const { reverse, states, weights } = direction;
  const editAt = editsOf(direction, edits);
  const { same, shift } = earlier ? sameSteps(direction, x, count, earlier) : { same: 0 };
  const [from, to] = reverse ? [0, count - same] : [same, count];
  const values = {};
  for (const [name, units] of Object.entries(direction.values)) {
    values[name] = new Float32Array(count * units);
    if (!same) continue;
    const [begin, end] = reverse ? [to, count] : [0, from];
    values[name].set(earlier.values[name].subarray((begin + shift) * units, (end + shift) * units), begin * units);
  }
  const statesAt = (t) => {
    const found = {};
    for (const name in states) found[name] = values[name].subarray(t * states[name], (t + 1) * states[name]);
    return found;
  };
  const products = inputProducts(direction, x, count, from, to);
  const scratch = scratchFor(direction);
  const first = start ?? direction.initial;
  let before = same ? statesAt(reverse ? to : from - 1) : first;
  for (let k = same; k < count; k++) {
    const t = reverse ? count - 1 - k : k;
    step(weights, products, before, editAt(t), values, t, scratch, x);
    before = statesAt(t);
  }
  return { direction, values, first, last: before, x };
};

// Runs all levels of a stacked layer. Returns the outputs of the last level, (steps, width) each; `output`, the first of
// them; and `parts`, the run of each direction by its label. `memory` keeps these runs for the next call.
const runLayer = (layer, steps, x, count, { edits = [], start = {}, memory = null } = {}) => {
  const earlierRuns = edits.length || Object.keys(start).length ? null : memory;
  const parts = {};
  let outputs = [x];
  for (const { merge, residual, directions } of layer.levels) {
    const inputs = outputs;
    const directionOutputs = directions.map((direction, k) => {
      const input = inputs[k % inputs.length];
      const run = runDirection(direction, steps[direction.label], input, count, edits, start[direction.label], earlierRuns?.get(direction.label));
      earlierRuns?.set(direction.label, run);
      parts[direction.label] = run;
      return run.values[Object.keys(direction.states)[0]];
    });
    outputs = (merge === "none" ? directionOutputs : [mergeOutputs(directionOutputs, merge, count)]).map((output, k) =>
      residual[k] ? output.map((value, index) => value + inputs[k][index]) : output,
    );
  }
  return { outputs, output: outputs[0], parts };
};

const mergeOutputs = (outputs, merge, count) => {
  if (outputs.length === 1) return outputs[0];
  if (merge !== "concat") {
    const factor = merge === "mean" ? 1 / outputs.length : 1;
    return outputs[0].map((_, index) => factor * outputs.reduce((sum, each) => sum + each[index], 0));
  }
  const widths = outputs.map((each) => each.length / count);
  const total = widths.reduce((sum, width) => sum + width, 0);
  const all = new Float32Array(count * total);
  for (let t = 0; t < count; t++) {
    let at = t * total;
    outputs.forEach((each, k) => {
      all.set(each.subarray(t * widths[k], (t + 1) * widths[k]), at);
      at += widths[k];
    });
  }
  return all;
};
