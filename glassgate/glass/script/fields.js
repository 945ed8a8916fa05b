// Input fields that check what is typed. A message names the expected and the given value.

// The numbers in "3" or "0-7, 12", in ascending order. Returns null if one of them is not a number from `low` to `high`.
const numbersIn = (words, low, high) => {
  const numbers = new Set();
  for (const part of words.replace(/\s*[-–]\s*/g, "-").split(/[\s,]+/).filter(Boolean)) {
    const found = /^(\d+)(?:-(\d+))?$/.exec(part);
    const [first, last] = found ? [Number(found[1]), Number(found[2] ?? found[1])] : [1, 0];
    if (first < low || first > last || last > high) return null;
    for (let number = first; number <= last; number++) numbers.add(number);
  }
  return [...numbers].sort((a, b) => a - b);
};

// Converts "5-9" to [4, 9], the first step and the one after the last. Returns null if it is not a range of steps from 1 to `count`.
const rangeIn = (words, count) => {
  const numbers = /,|\d\s+\d/.test(words) ? null : numbersIn(words, 1, count);
  return numbers?.length ? [numbers[0] - 1, numbers.at(-1)] : null;
};

const isAll = (words) => ["", "all", say("field.all")].includes(words.trim().toLowerCase());
const orNothing = (words) => words.trim() || say("field.nothing");
const unitsProblem = (words, count) => say("field.units", { last: count - 1, example: count > 3 ? say("field.units_example") : 0, given: orNothing(words) });
const stepsProblem = (words, count) => say("field.steps", { last: count, example: count > 2 ? "2-3" : "1", given: orNothing(words) });
const numberProblem = (name, low, high, words) => say("field.number", { name, low, high, given: words || say("field.no_number") });

// Shows the problem of a field, or none if `words` is empty.
const setProblem = (field, output, words) => {
  if (words) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
  output.textContent = words;
};

// Calls `chosen` with each whole number that is typed into a number field. Other entries get a message in `output`; when the
// reader leaves the field, it shows `current()` again. `limits` returns the lowest and the highest number.
const checkNumber = (field, output, name, { limits, current, chosen }) => {
  const isEmpty = () => field.value === "" && !field.validity.badInput;
  field.addEventListener("input", () => {
    const [low, high] = limits();
    const number = Number(field.value);
    const fits = field.value !== "" && Number.isInteger(number) && low <= number && number <= high;
    const words = fits || isEmpty() ? "" : numberProblem(name, low, high, field.value);
    setProblem(field, output, words);
    if (fits) chosen(number);
  });
  field.addEventListener("change", () => {
    if (!isEmpty() && !output.textContent) return;
    setProblem(field, output, "");
    field.value = current();
  });
};
