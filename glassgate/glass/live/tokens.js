// Splits a text into tokens in the same way as the training data of the run.
const PADDING = 0;
const UNKNOWN = 1;
const FIRST = 2;

const CJK = "\\u3040-\\u30ff\\u3400-\\u9fff\\uf900-\\ufaff";
const HAS_CJK = new RegExp(`[${CJK}]`, "u");
const CJK_PARTS = new RegExp(`[${CJK}]|[^${CJK}]+`, "gu");
const WORDS = /\n|<[\p{L}\p{N}_]+>|[\p{L}\p{N}_]+(?:['’][\p{L}\p{N}_]+)*|[^\p{L}\p{N}_\s]/gu;
const ABBREVIATION = /^(?:[\p{L}\p{N}_]\.){2,}$/u;
const CLITIC = /^([\p{L}\p{N}_]+?)(n['’]t|['’][\p{L}\p{N}_]{1,2})$/iu;
const SYMBOL = /^[\p{P}\p{S}]$/u;
const OPENING = new Set("([{<«“‘\"'「『（《");
const CLOSING = new Set(".,;:!?…)]}>»”’\"'。，、；：！？」』）》");

const SPLITTERS = {
  character: (text) => [...text],
  byte: (text) => [...new TextEncoder().encode(text)].map((byte) => String.fromCharCode(byte)),
  word: (text) => text.match(WORDS) ?? [],
  token: (text) => text.match(/\n|\S+/gu) ?? [],
  blank: (text) => text.match(/\S+/gu) ?? [],
};

// The last character of a token. A final run of equal characters stays whole if they are dots or a known token.
const lastMark = (token, known) => {
  const last = token.at(-1);
  let length = 1;
  while (length < token.length && token.at(-length - 1) === last) length++;
  const run = token.slice(-length);
  return run !== token && (known.has(run) || last === ".") ? run : last;
};

// Splits an unknown token into a word, its punctuation marks and its clitic.
const partsOf = (given, known) => {
  const [before, behind] = [[], []];
  let token = given;
  const splits = (letter, usual) => usual.has(letter) || (SYMBOL.test(letter) && known.has(letter));
  while (token && !known.has(token) && !ABBREVIATION.test(token)) {
    if (token.length > 1 && splits(token[0], OPENING)) {
      before.push(token[0]);
      token = token.slice(1);
    } else if (token.length > 1 && splits(token.at(-1), CLOSING)) {
      const mark = lastMark(token, known);
      behind.unshift(mark);
      token = token.slice(0, -mark.length);
    } else {
      const match = CLITIC.exec(token);
      if (!match || !known.has(match[2])) break;
      behind.unshift(match[2]);
      token = match[1];
    }
  }
  return [...before, ...(token ? [token] : []), ...behind];
};

// Splits unknown tokens further if the tokens of the training data are finer.
const refine = (tokens, known, { tokenised, segmented, longest }) => {
  const found = tokenised ? tokens.flatMap((token) => partsOf(token, known)) : tokens;
  const cjk = segmented ? found.filter((token) => HAS_CJK.test(token)) : [];
  const unknown = cjk.filter((token) => [...token].length > 1 && !known.has(token));
  const lacksBlanks = unknown.length > 0 && (cjk.length === 1 || unknown.some((token) => [...token].length > longest));
  return lacksBlanks ? found.flatMap((token) => (known.has(token) ? [token] : token.match(CJK_PARTS) ?? [])) : found;
};

// Byte-pair encoding: {text, from, to} for each subword. A space becomes "▁", the first character of the next subword.
const BLANK = "\u2581";
const PIECES = /[!-/:-@[-`{-~\p{P}]|\u2581?[^\u2581!-/:-@[-`{-~\p{P}]+|\u2581/gu;
const subwordSplitter = ({ letters, merges }) => {
  const known = new Set(letters);
  const rank = new Map(merges.map((pair, index) => [pair.join("\n"), index]));
  const rankOf = (parts, k) => rank.get(`${parts[k]}\n${parts[k + 1]}`) ?? Infinity;
  const splitPiece = (piece) => {
    const parts = [...piece].map((letter) => (known.has(letter) ? letter : `\0${letter}`));
    while (parts.length > 1) {
      let best = 0;
      for (let k = 1; k < parts.length - 1; k++) if (rankOf(parts, k) < rankOf(parts, best)) best = k;
      if (rankOf(parts, best) === Infinity) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
    return parts.map((part) => part.replace("\0", ""));
  };
  return (text) => {
    if (!text.trim()) return [];
    const blanks = text.replaceAll(" ", BLANK);
    const added = blanks.startsWith(BLANK) ? 0 : 1;
    let at = -added;
    return ((added ? BLANK : "") + blanks).match(PIECES).flatMap(splitPiece).map((part) => {
      const from = at + (part.startsWith(BLANK) ? 1 : 0);
      at += part.length;
      return { text: part, from, to: at };
    });
  };
};

// Returns a function from a text to its tokens, {text, number, from, to}. `from` and `to` are indices into the text.
const tokenizer = ({ unit, symbols, raw = null, known_only: knownOnly = false, lower = false, letters = [], merges = null }) => {
  const known = new Map(symbols.map((symbol, index) => [symbol, index + FIRST]));
  if (merges) {
    const split = subwordSplitter({ letters, merges });
    return (given) => split(lower ? given.toLowerCase() : given).map((token) => ({ ...token, number: known.get(token.text) ?? UNKNOWN }));
  }
  return (given) => {
    const text = lower ? given.toLowerCase() : given;
    let tokens = SPLITTERS[unit](text);
    if (raw) tokens = refine(tokens, known, raw);
    if (knownOnly) tokens = tokens.filter((token) => known.has(token) || /\S/u.test(token));
    let at = 0;
    return tokens.map((token) => {
      const number = known.get(token) ?? UNKNOWN;
      if (unit === "byte") return { text: token, number, from: 0, to: 0 };
      const from = text.indexOf(token, at);
      at = from + token.length;
      return { text: token, number, from, to: at };
    });
  };
};

// The result of `read` for a text before the network runs: its tokens, their texts, and each unknown token once.
const tokenised = (tokens) => {
  const unknown = tokens.filter(({ number }) => number === UNKNOWN).map(({ text }) => text);
  return { count: tokens.length, tokens, labels: tokens.map(({ text }) => text), parts: {}, answers: [], unknown: [...new Set(unknown)] };
};
const numbersOf = (tokens) => tokens.map(({ number }) => number);
