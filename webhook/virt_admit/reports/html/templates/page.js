(() => {
  "use strict";
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent.trim();
  };
  const compare = (one, other) => {
    const [a, b] = [one.replaceAll(",", ""), other.replaceAll(",", "")].map(Number);
    return Number.isNaN(a) || Number.isNaN(b) ? one.localeCompare(other, "en", {numeric: true}) : a - b;
  };
  const sort = (table, head) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, head.cellIndex), row]);
    rows.sort((one, other) => compare(one[0], other[0]) * (down ? -1 : 1));
    table.tBodies[0].append(...rows.map((pair) => pair[1]));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head));
      head.append(button);
    }
  }
  for (const time of document.querySelectorAll("time")) {
    const minutes = Math.floor((Date.now() - Date.parse(time.dateTime)) / 60000);
    if (!(minutes >= 0)) continue;
    const [number, unit] = minutes < 120 ? [minutes, "minute"] : minutes < 2880 ? [minutes / 60, "hour"] : [minutes / 1440, "day"];
    time.after(`, ${new Intl.RelativeTimeFormat("en").format(-Math.floor(number), unit)}`);
  }
  const form = document.getElementById("filter");
  const words = document.getElementById("words");
  const chosen = document.getElementById("class");
  const rows = [...document.querySelectorAll("tbody > tr")].map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    details: row.querySelector("details"),
    items: [...row.querySelectorAll(".items > li")].map((item) => [item, item.textContent.toLowerCase()]),
    head: [...row.querySelectorAll("code, p, .chip")].map((part) => part.textContent.toLowerCase()).join(" "),
  }));
  const filter = () => {
    const word = words.value.trim().toLowerCase();
    const cls = chosen ? chosen.value : "";
    let shown = 0;
    for (const {row, text, items, head, details} of rows) {
      row.hidden = !text.includes(word) || (cls !== "" && row.dataset.class !== undefined && row.dataset.class !== cls);
      shown += row.hidden ? 0 : 1;
      const all = word === "" || head.includes(word);
      for (const [item, name] of items) item.hidden = !all && !name.includes(word);
      if (details) details.open = word !== "" && !all;
    }
    document.getElementById("found").textContent = word || cls ? `${shown} of ${rows.length} rows` : "";
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  let pending = 0;
  form.addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(filter, 120);
  });
  form.hidden = rows.length < 2;
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();
