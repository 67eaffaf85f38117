"use strict";
// Sort and filter tables, and read values off a trace. Without this script the pages show everything, in the order of the score.
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
  const lines = Array.from(table.tBodies[0].rows, (line) => [value(line), line]);
  lines.sort(([x], [y]) => {
    const order = compare(heading.dataset.sort, x, y);
    return descending && x !== "" && y !== "" ? -order : order;
  });
  table.tBodies[0].append(...lines.map(([, line]) => line));
}

function filterRows(filters) {
  const table = document.getElementById(filters.dataset.for);
  const wanted = {};
  for (const control of filters.querySelectorAll("[data-filter]")) wanted[control.dataset.filter] = control.value;
  const text = wanted.text.trim().toLowerCase();
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const fits =
      (!wanted.kind || row.dataset.kind === wanted.kind) &&
      (!wanted.verdict || row.dataset.verdict.split(" ").includes(wanted.verdict)) &&
      (!text || row.querySelector("th").textContent.toLowerCase().includes(text));
    row.hidden = !fits;
    shown += fits;
  }
  filters.querySelector(".count").textContent = `${shown} of ${table.tBodies[0].rows.length}`;
}

function readTrace(figure) {
  const series = JSON.parse(figure.dataset.series);
  const picture = figure.querySelector("svg");
  const cursor = figure.querySelector(".cursor");
  const output = figure.querySelector("output");
  const last = series.time_s.length - 1;
  const end = series.time_s[last];
  let at = last;
  function show(index) {
    at = Math.max(0, Math.min(last, index));
    const x = 56 + (560 * series.time_s[at]) / end;
    cursor.setAttribute("d", `M${x.toFixed(1)} 8V${cursor.dataset.bottom}`);
    cursor.setAttribute("visibility", "visible");
    const delivered = series.delivered.map((flow) => flow[at]).join(" + ");
    output.textContent =
      `${series.time_s[at]} s: link ${series.link[at]} Mbit/s, sent ${series.sent[at]}, delivered ${delivered}, ` +
      `lost ${series.lost[at]}, queue ${series.queue_ms[at]} ms` +
      (series.rtt_ms
        ? `, RTT ${series.rtt_ms.map((flow) => flow[at]).join(" + ")} ms, held ${series.held[at]} ms, not used ${series.wasted[at]}`
        : "");
  }
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const time = ((((event.clientX - box.left) / box.width) * 640 - 56) / 560) * end;
    const index = series.time_s.findIndex((value) => value >= time);
    show(index < 0 ? last : index);
  });
  const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -last, End: last };
  picture.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(at + steps[event.key]);
  });
}

for (const heading of document.querySelectorAll("th[data-sort]")) {
  heading.querySelector("button").addEventListener("click", () => sortBy(heading));
}
for (const filters of document.querySelectorAll(".filters")) {
  filters.hidden = false;
  filters.addEventListener("input", () => filterRows(filters));
}
for (const figure of document.querySelectorAll(".viewer")) readTrace(figure);
