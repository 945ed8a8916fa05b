// All runs of the page, the keyboard and the theme.
(() => {
  const reports = [];
  const pageData = JSON.parse(document.getElementById("data").textContent);
  // The interactive part of a page searches the same places.
  if (pageData.places) globalThis.glassgateSearch = { places: pageData.places, series: pageData.series, embeddedPlaces, activeUnits, nearestPlaces, placeRow };
  (pageData.runs || [pageData]).forEach((data, run) => reports.push(report(data, run, reports)));
  // The keyboard changes the unit and the layer of the run that the pointer entered last.
  let [current] = reports;
  for (const each of reports) for (const root of each.roots) root.addEventListener("pointerenter", () => (current = each));
  document.getElementById("theme").addEventListener("click", toggleTheme);
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, summary, textarea, #live")) return;
    const moves = event.shiftKey ? { ArrowLeft: () => current.extend(-1), ArrowRight: () => current.extend(1) } : {
      ArrowLeft: () => current.go(-1),
      ArrowRight: () => current.go(1),
      ArrowUp: () => current.moveUnit(-1),
      ArrowDown: () => current.moveUnit(1),
      l: () => current.layer(),
      n: () => current.next(),
      t: toggleTheme,
      Escape: () => current.clear(),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  });
  const addToLink = linking(document.getElementById("link"), document.getElementById("linked"));
  const isOfPage = (states) => Array.isArray(states) && states.length === reports.length;
  addToLink("runs", { get: () => reports.map(({ state }) => state()), set: (states) => isOfPage(states) && reports.every(({ restore }, k) => restore(states[k])) });
  globalThis.glassgateLink = addToLink;
  document.documentElement.classList.add("live");
  document.getElementById("bar").hidden = false;
})();
