// Elements of a page, the shades of its text, its theme, and work before a frame.

// Makes an element with attributes, listeners (onclick ...) and children.
const element = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
};

const svgElement = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

// The CSS class of a shade: of a fraction from 0 to 1 for a gate, otherwise from -1 to 1.
const shadeOf = (fraction, kind) => {
  const level = Math.round(10 * Math.min(1, Math.abs(fraction)));
  return (kind === "gate" ? "g" : fraction >= 0 || !level ? "p" : "n") + level;
};

const isDark = () => {
  const chosen = document.documentElement.style.colorScheme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const toggleTheme = () => (document.documentElement.style.colorScheme = isDark() ? "light" : "dark");

// Returns a function that runs `work` before the next frame, once for all calls until then.
const onFrame = (work) => {
  let scheduled = false;
  return () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      work();
    });
  };
};
