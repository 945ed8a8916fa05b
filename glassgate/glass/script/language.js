// The messages of the page's language, as in glassgate/glass/languages. MESSAGES precedes the script.
const fill = (message, fields) =>
  message.replace(/\{(\w+)(?::([^{}|]*)\|([^{}]*))?\}/g, (_, name, one, many) => {
    const words = String(fields[name]);
    return one === undefined ? words : words === "1" ? one : many;
  });
const say = (key, fields = {}) => fill(MESSAGES[key], fields);
const clauses = (...parts) => parts.filter(Boolean).join(say("words.comma"));
const listed = (words) => words.join(say("words.separator"));
const listedWithAnd = (words) => (words.length > 1 ? say("words.and", { first: listed(words.slice(0, -1)), last: words.at(-1) }) : words.join());
const sentences = (...parts) => parts.filter(Boolean).join(say("words.between_sentences"));
