// Functions for numbers and networks that all interactive pages share.
const byId = (id) => document.getElementById(id);

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);
const argmax = (numbers) => numbers.reduce((best, value, index) => (value > numbers[best] ? index : best), 0);

const softmax = (scores) => {
  const peak = scores.reduce((most, each) => Math.max(most, each), -Infinity);
  const exponentials = scores.map((each) => Math.exp(each - peak));
  const total = sum(exponentials);
  return exponentials.map((each) => each / total);
};

// Rows (count, inputs) times the transpose of a weight (outputs, inputs), plus a bias.
const linear = ({ weight, bias }, rows, count) => {
  const inputs = rows.length / count;
  const outputs = weight.length / inputs;
  const products = new Float32Array(count * outputs);
  for (let t = 0; t < count; t++) multiply(products, t * outputs, outputs, weight, inputs, rows, t * inputs);
  if (bias) for (let k = 0; k < products.length; k++) products[k] += bias[k % outputs];
  return products;
};

// Looks up the row of an embedding for each number. Returns the concatenated rows.
const embed = (weight, size, numbers) => {
  const rows = new Float32Array(numbers.length * size);
  numbers.forEach((number, t) => rows.set(weight.subarray(number * size, (number + 1) * size), t * size));
  return rows;
};

// Adds the linear map of the numbers of tokens, if there is one, to the outputs.
const addLinear = (map, numbers, outputs) => {
  if (!map) return outputs;
  const parts = rowsOf(embed(map.table, outputs.length, numbers), numbers.length);
  const norm = Math.sqrt(Math.max(sum(numbers.map((number) => map.rarity[number] ** 2)), 1));
  return outputs.map((value, k) => value + sum(parts.map((part) => part[k])) / norm);
};

// Adds the map of the standardised steps of a series, if there is one, to the outputs.
const addSeries = (map, steps, count, outputs) => {
  if (!map) return outputs;
  return map.support ? addKernel(map, steps, count, outputs) : addSteps(map, steps, outputs);
};

// Adds a linear map. Further steps than those of the training series have no part.
const addSteps = (map, steps, outputs) => {
  const size = outputs.length;
  const channels = map.weight.length / map.bias.length;
  const values = [...steps.slice(0, map.weight.length / size)];
  const part = (value, n, k) => value * map.weight[n * size + k] + (n % channels ? 0 : map.bias[(n / channels) * size + k]);
  return outputs.map((output, k) => output + sum(values.map((value, n) => part(value, n, k))));
};

// Adds a regression with a Gaussian kernel. It compares the means of equal parts of the series, or their differences,
// with those of the training series.
const addKernel = ({ support, coefficients, features, differences, rate }, steps, count, outputs) => {
  const channels = steps.length / count;
  const parts = features + differences;
  const length = count / parts;
  const means = Array.from({ length: parts * channels }, (_, n) => {
    const first = Math.floor(n / channels) * length;
    const last = Math.min(first + length, count);
    let total = 0;
    for (let t = Math.floor(first); t < last; t++) total += steps[t * channels + (n % channels)] * (Math.min(last, t + 1) - Math.max(first, t));
    return total / length;
  });
  const compared = differences ? means.slice(channels).map((mean, n) => mean - means[n]) : means;
  const distances = rowsOf(support, support.length / compared.length).map((row) => sum(compared.map((value, n) => (value - row[n]) ** 2)) / compared.length);
  const values = distances.map((distance) => Math.exp(-rate * distance));
  return outputs.map((output, k) => output + sum(values.map((value, s) => value * coefficients[s * outputs.length + k])));
};

// Each row of (count, width) as an array of its own.
const rowsOf = (values, count) => {
  const width = values.length / count;
  return Array.from({ length: count }, (_, t) => values.subarray(t * width, (t + 1) * width));
};

// The probabilities at each step: the softmax of a linear layer applied to the output of a recurrent layer.
const stepChances = (head, output, count) => rowsOf(linear(head, output, count), count).map(softmax);

// The concatenated outputs of the last layer's directions. Each direction ends at another step: the last or the first.
const finalOutputs = (layer, parts) => {
  const { directions } = layer.levels.at(-1);
  return concatenate(directions.map(({ label, states }) => parts[label].last[Object.keys(states)[0]]));
};

const concatenate = (arrays) => {
  const all = new Float32Array(sum(arrays.map((each) => each.length)));
  let at = 0;
  for (const each of arrays) {
    all.set(each, at);
    at += each.length;
  }
  return all;
};

// The indices of the largest numbers, the largest first.
const largest = (numbers, most) => {
  const found = [];
  for (let k = 0; k < numbers.length; k++) {
    if (found.length === most && !(numbers[k] > numbers[found.at(-1)])) continue;
    let index = found.length;
    while (index && numbers[k] > numbers[found[index - 1]]) index--;
    found.splice(index, 0, k);
    if (found.length > most) found.pop();
  }
  return found;
};

// The most probable choices, [name, probability] each.
const likeliest = (chances, names, most = 5) => largest(chances, most).map((k) => [names[k], chances[k]]);
