// Answers in words.
const quoteLetter = (words) => (words.length === 1 ? quoted(words) : words);
const chance = (p) => (p === null ? "" : ` ${percent(p)}`);
const short = (v) => (v && (Math.abs(v) >= 1000 || Math.abs(v) < 1e-4) ? withMinus(v.toExponential(2)) : fixed(v, 4));
const signed = (v) => `${v < 0 ? "" : "+"}${fixed(v)}`;

const describeAnswer = (answer) => {
  if (!answer) return "";
  const [first, second] = answer.best;
  let words = `predicts ${quoteLetter(first[0])}${chance(first[1])}`;
  if (answer.target && first[1] === null) words += `, target ${answer.target[0]}`;
  else if (answer.target) words += first[0] === answer.target[0] ? " ✓" : ` ✗ target ${quoteLetter(answer.target[0])}${chance(answer.target[1])}`;
  return second ? `${words}, second choice ${quoteLetter(second[0])}${chance(second[1])}` : words;
};

// The score of an answer in words, and the parts that add up to it.
const scoreOf = (name, { best }) => best.slice(0, 2).reduce((words, [choice], k) => words.replace(`{${k}}`, quoteLetter(choice)), name);
const sumOfParts = ({ total, biases, rest, score }) => {
  const parts = [`${signed(total)} from the steps`, `${signed(biases)} from biases`];
  if (Math.abs(rest) >= 0.005) parts.push(`${signed(rest)} that does not pass through this layer's input`);
  return `${signed(score)} = ${parts.join(", ")}`;
};
