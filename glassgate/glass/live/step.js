// The details of one unit at one step: values on the wires of the cell's diagram, and the terms of matrix products.
const wireKey = (name) => (/^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) ? name : `wire_${name.replaceAll(".", "_")}`);

// The vector on a wire: for "x" the input, for "h_prev" the state before the step.
const vectorOf = (name, { run, step }) => {
  const { values, direction, first, x } = run;
  const at = (rows, t, width) => rows.subarray(t * width, (t + 1) * width);
  if (name === "x") return at(x, step, direction.inputs);
  const state = name.endsWith("_prev") ? name.slice(0, -5) : "";
  if (Object.hasOwn(direction.states, state)) {
    const before = direction.reverse ? step + 1 : step - 1;
    const units = direction.values[state];
    return before >= 0 && before < values[state].length / units ? at(values[state], before, units) : first[state];
  }
  const key = wireKey(name);
  return Object.hasOwn(direction.values, key) ? at(values[key], step, direction.values[key]) : undefined;
};

// The value of the unit on a wire; for "x" the norm of the input.
const valueOn = (name, where) => {
  const vector = vectorOf(name, where);
  return name === "x" ? Math.hypot(...vector) : vector?.[where.unit];
};

const showWires = (diagram, where) => {
  for (const wire of diagram.querySelectorAll(".wire")) {
    const label = wire.querySelector("text.value");
    if (!label) continue;
    const name = wire.dataset.name ?? "";
    const value = valueOn(name, where);
    label.textContent = value === undefined ? "" : name === "x" ? `‖x‖ ${fixed(value)}` : fixed(value);
  }
};

// The sum of the terms of a unit's matrix product, and its largest terms, [name, term] each, the largest first.
const termsOf = ({ weight, vector, heads, units }, where, inputs) => {
  const matrix = where.run.direction.weights[weight];
  const right = vectorOf(vector, where);
  const columns = matrix.length / units;
  const first = Math.floor(where.unit / (units / heads)) * columns;
  const terms = Array.from({ length: columns }, (_, k) => matrix[where.unit * columns + k] * right[first + k]);
  const short = vector.replace(/_prev$/, "");
  const names = terms.map((_, k) => (vector === "x" ? inputs?.[k] ?? `x[${k}]` : say("product.before", { name: `${short}[${first + k}]` })));
  return { total: sum(terms), largest: likeliest(terms.map(Math.abs), [...terms.keys()], 4).map(([k]) => [names[k], terms[k]]) };
};

const signedBar = (value, peak) => {
  const fill = element("i", { className: value < 0 ? "minus" : "plus" });
  const width = 50 * Math.min(1, Math.abs(value) / peak);
  Object.assign(fill.style, { left: `${value < 0 ? 50 - width : 50}%`, width: `${width}%` });
  return element("dd", { className: "bar-of", ariaHidden: "true" }, fill);
};

// Shows a block for each matrix product of the unit: the sum of its terms, and the largest terms. All bars have one scale.
const showProducts = (container, where, inputs) => {
  const { direction } = where.run;
  const products = Object.entries(direction.products).filter(([, parts]) => where.unit < parts[0].units).map(([name, parts]) => {
    const found = parts.map((part) => ({ ...part, ...termsOf(part, where, inputs) }));
    const bias = direction.weights[`${name}_bias`]?.[where.unit];
    return { name, found, bias, rows: [...(bias === undefined ? [] : [[say("product.bias"), bias]]), ...found.flatMap(({ largest }) => largest)] };
  });
  const peak = Math.max(1e-9, ...products.flatMap(({ rows }) => rows.map(([, value]) => Math.abs(value))));
  const blocks = products.map(({ name, found, bias, rows }) => {
    const total = sum(found.map((part) => part.total)) + (bias ?? 0);
    const summands = found.map(({ vector, total: subtotal }) => `${vector === "x" ? "W x" : `U ${vector.replace(/_prev$/, "")}`} ${fixed(subtotal)}`);
    if (bias !== undefined) summands.push(`${say("product.bias")} ${fixed(bias)}`);
    const title = element("h4", {}, element("b", {}, name.replace(/_pre$/, "")), say("product.sum", { total: fixed(total), summands: summands.join(" + ") }));
    const bars = rows.flatMap(([label, value]) => [element("dt", {}, label), signedBar(value, peak), element("dd", { className: "number" }, fixed(value, 3))]);
    return element("div", { className: "live-product" }, title, element("dl", { className: "live-bars" }, ...bars));
  });
  container.replaceChildren(...blocks);
};
