// Numbers, counts and texts of steps in words, as in glassgate/glass/wording.py. Reports and interactive pages share them.
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const withMinus = (text) => text.replace("-", "−");

// A number with a fixed number of decimals. Small negative numbers are "0.00" and not "−0.00".
const fixed = (value, digits = 2) => {
  if (value === undefined || value === null) return "–";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value < 0 ? "−∞" : "∞";
  return withMinus(value.toFixed(digits).replace(/^-(?=0(?:\.0*)?$)/, ""));
};

const percent = (fraction) => {
  if (!Number.isFinite(fraction)) return fixed(fraction);
  if (fraction > 0 && fraction < 0.0005) return say("number.tiny_percent");
  return say("number.percent", { number: fixed(100 * fraction, fraction >= 0.1 || fraction === 0 ? 0 : 1) });
};

// A number of steps in words.
const stepsInWords = (count) => {
  if (count === Infinity) return say("words.ever");
  if (count > 0 && count < 0.01) return say("words.few_steps");
  const words = count >= 10 || Number.isInteger(count) ? fixed(count, 0) : count >= 0.95 ? fixed(count, 1).replace(/\.0$/, "") : String(Number(count.toPrecision(2)));
  return say("words.steps", { count: words });
};

// The text of a step, in quotes if it is short. Line ends and spaces become visible.
const quoted = (words) => (words.trim().length > 1 ? words : `“${words === "\n" ? "↵" : words === " " ? "␣" : words}”`);

// About `count` evenly spaced round numbers in a range, as `round_numbers` in glassgate/glass/svg.py.
const roundNumbers = (low, high, count = 5) => {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => power * factor).find((each) => each >= rough * 0.999);
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(12)) + 0);
};
