// Tables that are wider than the page scroll; a keyboard reaches them.
function focusWideTables() {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap"))
    table.scrollWidth > table.clientWidth ? (table.tabIndex = 0) : table.removeAttribute("tabindex");
}
addEventListener("load", focusWideTables);
addEventListener("resize", focusWideTables);
