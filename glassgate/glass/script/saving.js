// A button that saves a plot as an SVG file, in its current colours.
const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-style", "font-weight"];

const addSaveButton = (svg) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "save";
  button.textContent = "SVG";
  button.setAttribute("aria-label", say("page.save", { picture: svg.getAttribute("aria-label") || say("page.diagram") }));
  button.addEventListener("click", () => {
    const copy = svg.cloneNode(true);
    const from = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((each, k) => {
      const style = getComputedStyle(from[k]);
      for (const name of KEPT) if (style.getPropertyValue(name)) each.setAttribute(name, style.getPropertyValue(name));
      each.removeAttribute("class");
    });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
    link.download = `${svg.closest("section").id}.svg`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  svg.closest("figure").append(button);
};
