// A button that saves a plot as an SVG file, in its current colours.
const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-style", "font-weight"];

const addSaveButton = (svg) => {
  const save = () => {
    const copy = svg.cloneNode(true);
    const from = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((each, k) => {
      const style = getComputedStyle(from[k]);
      for (const name of KEPT) if (style.getPropertyValue(name)) each.setAttribute(name, style.getPropertyValue(name));
      each.removeAttribute("class");
    });
    const href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
    element("a", { href, download: `${svg.closest("section").id}.svg` }).click();
    URL.revokeObjectURL(href);
  };
  const label = say("page.save", { picture: svg.getAttribute("aria-label") || say("page.diagram") });
  svg.closest("figure").append(element("button", { type: "button", className: "save", "aria-label": label, onclick: save }, "SVG"));
};
