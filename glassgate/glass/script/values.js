// The data of a page. Arrays are unpacked when they are first read.
const TYPES = { "<f4": Float32Array, "<u2": Uint16Array, "|u1": Uint8Array };

const unpack = (packed) => {
  if (!packed.numbers) {
    const bytes = Uint8Array.from(atob(packed.b64), (c) => c.charCodeAt(0));
    packed.numbers = new TYPES[packed.type](bytes.buffer);
  }
  return packed;
};
const numberAt = (packed, index) => {
  const raw = unpack(packed).numbers[index];
  return packed.type === "<f4" ? raw : packed.low + raw * packed.spacing;
};
const rowOf = (packed, row, width) => Array.from({ length: width }, (_, k) => numberAt(packed, row * width + k));

// The values, answers and contributions of one run; `now` is its cursor.
const readings = (data, now) => {
  for (const part of data.parts) {
    part.columnOf = new Map(part.shown.map((unit, k) => [unit, k]));
    for (const packed of [...Object.values(part.values), ...Object.values(part.wires)])
      packed.width = packed.units === 1 ? 1 : part.shown.filter((u) => u < packed.units).length;
  }
  const value = (part, name, step, unit) => {
    const packed = part.values[name] || part.wires[name];
    const index = packed && packed.units === 1 ? 0 : part.columnOf.get(unit);
    return packed && index !== undefined && index < packed.width ? numberAt(packed, step * packed.width + index) : undefined;
  };

  // The answers by step, and those about a whole passage.
  const passageOf = (step) => data.starts.findLastIndex((start) => start <= step);
  const answers = data.answers.map((given, k) => {
    const byStep = new Map();
    const whole = [];
    given.forEach(([step, best, target], number) => {
      const entry = { best, target, number };
      if (step === null) whole.push(entry);
      else byStep.set(data.starts[k] + step, entry);
    });
    return { byStep, whole };
  });
  // The answer at a step. Of several answers about a whole passage, it is the one with the selected number.
  const answerAt = (step) => {
    const { byStep, whole } = answers[passageOf(step)];
    return byStep.get(step) || whole.find(({ number }) => number === now.answer) || whole[0];
  };

  // The index of the matrix row for the answer at the cursor, or for the nearest answer with a row.
  const rowHere = (matrix) => {
    const answer = answerAt(now.step);
    if (!matrix || !answer) return null;
    const distances = matrix.targets.map((target) => Math.abs(target - answer.number));
    return distances.indexOf(Math.min(...distances));
  };

  // The contribution of each step to the answer at the cursor (gradient times input), and the attention.
  const contributions = () => {
    const k = passageOf(now.step);
    const connection = data.connections[k];
    const row = rowHere(connection);
    if (row === null) return null;
    const [, width] = connection.shape;
    const [numbers, attention] = [connection.values, connection.attention].map(
      (packed) => packed && unpack(packed).numbers.subarray(row * width, (row + 1) * width),
    );
    return { start: data.starts[k], numbers, attention, row };
  };

  // The relevance of each step to the answer at the cursor (layer-wise relevance propagation). The score of the answer is
  // total + biases + rest, and `total` is the relevance of all steps together.
  const relevance = () => {
    const k = passageOf(now.step);
    const each = data.relevances[k];
    const row = rowHere(each);
    if (row === null) return null;
    const numbers = rowOf(each.values, row, each.shape[1]).map((fraction) => fraction * each.peaks[row]);
    const [total, biases, score] = [each.totals[row], each.biases[row], each.scores[row]];
    const [step, best] = data.answers[k][each.targets[row]];
    return { start: data.starts[k], numbers, total, biases, score, rest: score - total - biases, step, best, name: each.name };
  };

  return { total: data.starts.at(-1), steps: data.steps.flat(), value, passageOf, answerAt, contributions, relevance };
};
