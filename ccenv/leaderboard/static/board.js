"use strict";
// Sort a table by the column whose heading is pressed. Without this script the pages show everything, in the order of the score.
function compare(kind, a, b) {
  if (a === "" || b === "") return (a === "") - (b === ""); // no value: last
  return kind === "number" ? Number(a) - Number(b) : a.localeCompare(b);
}

function sortBy(heading) {
  const row = heading.parentElement;
  const table = heading.closest("table");
  const column = Array.prototype.indexOf.call(row.children, heading);
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of row.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = (line) => line.children[column].dataset.value || "";
  const lines = Array.from(table.tBodies[0].rows);
  lines.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const order = compare(heading.dataset.sort, x, y);
    return descending && x !== "" && y !== "" ? -order : order;
  });
  table.tBodies[0].append(...lines);
}

for (const heading of document.querySelectorAll("th[data-sort]")) {
  heading.querySelector("button").addEventListener("click", () => sortBy(heading));
}
