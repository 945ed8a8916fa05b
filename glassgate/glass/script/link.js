// The state of a page as the fragment of a link. Each part of the page adds its own state under a name.
const isIndex = (number, count) => Number.isInteger(number) && number >= 0 && number < count;

const fragmentOf = (state) => {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const letters = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return `#state=${letters.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
};

// The state in a fragment; null if it has none. Throws an error if it is damaged.
const stateOf = (fragment) => {
  const found = /^#state=(.*)$/.exec(fragment);
  if (!found) return null;
  const letters = atob(found[1].replaceAll("-", "+").replaceAll("_", "/"));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(letters, (letter) => letter.charCodeAt(0))));
};

// A part has `get`, which returns its state, and `set`, which restores one and returns whether the state fits the page.
const linking = (button, output) => {
  const parts = new Map();
  const restore = (names) => {
    try {
      const state = stateOf(location.hash);
      if (!state) return;
      const fits = names.every((name) => state[name] === undefined || parts.get(name).set(state[name]));
      output.textContent = fits ? "" : say("link.misfit");
    } catch {
      output.textContent = say("link.misfit");
    }
  };
  button.addEventListener("click", async () => {
    const state = Object.fromEntries([...parts].map(([name, { get }]) => [name, get()]));
    history.replaceState(null, "", fragmentOf(state));
    try {
      await navigator.clipboard.writeText(location.href);
      output.textContent = say("link.copied");
    } catch {
      output.textContent = say("link.in_address_bar");
    }
    setTimeout(() => (output.textContent = ""), 4000);
  });
  addEventListener("hashchange", () => restore([...parts.keys()]));
  return (name, part) => {
    parts.set(name, part);
    restore([name]);
  };
};
