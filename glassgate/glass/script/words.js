"use strict";
// Numbers and answers in words.
const clamp = (number, most) => Math.max(0, Math.min(most, number));
const quote = (words) => (words.trim().length > 1 ? words : `“${words === "\n" ? "↵" : words}”`);
const quoteLetter = (words) => (words.length === 1 ? quote(words) : words);
const chance = (p) => (p === null ? "" : p >= 0.1 ? ` ${(100 * p).toFixed(0)} %` : ` ${(100 * p).toPrecision(2)} %`);
const percent = (fraction) => `${fraction >= 0.995 ? 100 : (100 * fraction).toPrecision(2).replace(/\.0$/, "")} %`;
const brief = (v) => (v === undefined ? "–" : v.toFixed(3).replace("-", "−"));
const short = (v) => (v === undefined ? "–" : Math.abs(v) >= 1000 || (v && Math.abs(v) < 1e-4) ? v.toExponential(2) : v.toFixed(4)).replace("-", "−");
const signed = (v) => `${v < 0 ? "−" : "+"}${Math.abs(v).toFixed(2)}`;

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
