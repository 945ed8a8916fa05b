// Answers in words, as in glassgate/glass/text_section.py.
const quoteLetter = (words) => (words.length === 1 ? quoted(words) : words);
const short = (v) => (v && (Math.abs(v) >= 1000 || Math.abs(v) < 1e-4) ? withMinus(v.toExponential(2)) : fixed(v, 4));
const signed = (v) => `${v < 0 ? "" : "+"}${fixed(v)}`;
const choiceInWords = ([name, chance]) => (chance === null ? withMinus(name) : `${quoteLetter(name)} ${percent(chance)}`);

const describeAnswer = ({ best: [first, second], target }) => {
  let words = say("answers.predicts", { choice: choiceInWords(first) });
  if (target) {
    const expected = say("answers.target", { choice: choiceInWords(target) });
    words = first[1] === null ? clauses(words, expected) : first[0] === target[0] ? `${words} ✓` : `${words} ✗ ${expected}`;
  }
  return second ? say("answers.and_second", { answer: words, second: choiceInWords(second) }) : words;
};

// The score of an answer in words, and the parts that add up to it.
const scoreOf = (name, { best: [first, second] }) => fill(name, { first: quoteLetter(first[0]), second: second && quoteLetter(second[0]) });
const sumOfParts = ({ total, biases, rest, score }) => {
  const parts = [say("relevance.steps", { number: signed(total) }), say("relevance.biases", { number: signed(biases) })];
  if (Math.abs(rest) >= 0.005) parts.push(say("relevance.rest", { number: signed(rest) }));
  return `${signed(score)} = ${clauses(...parts)}`;
};
