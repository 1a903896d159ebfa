// The rows as a table that sorts and filters.

const filter = { search: "", verdicts: new Set(), series: "", cause: "", tree: "", groups: null };
let table = null;
let activeRows = null; // as shown: filtered and sorted; made when needed

function matches(row) {
  if (filter.verdicts.size && !filter.verdicts.has(row[view.verdict])) return false;
  if (filter.series && row[view.series] !== filter.series) return false;
  if (filter.cause && row[view.cause] !== filter.cause) return false;
  if (filter.tree) {
    const path = row[view.tree];
    if (path !== filter.tree && !path.startsWith(filter.tree + "\u001f")) return false;
  }
  if (filter.search) {
    const text = state.data.searchText(row.i);
    for (const word of filter.search) if (!text.includes(word)) return false;
  }
  return true;
}

function isFiltered() {
  return filter.search || filter.verdicts.size || filter.series || filter.cause || filter.tree;
}

function applyFilter() {
  if (!table) return;
  if (isFiltered()) table.setFilter(matches);
  else table.clearFilter();
  activeRows = null;
  const shown = table.getDataCount("active");
  const all = state.data.n;
  byId("count").textContent = shown === all ? `${all} ${view.rows}` : `${shown} of ${all} ${view.rows}`;
  byId("clear").hidden = !isFiltered();
  for (const button of document.querySelectorAll("[data-verdict]")) {
    const word = button.dataset.verdict;
    const on = word === "" ? filter.verdicts.size === 0 : filter.verdicts.has(word);
    button.setAttribute("aria-pressed", on ? "true" : "false");
  }
  byId("where").textContent = filter.tree ? "in " + visible(filter.tree.split("\u001f").join(" / ")) : "";
}

function toggleVerdict(word) {
  if (word === "") filter.verdicts.clear();
  else if (!filter.verdicts.delete(word)) filter.verdicts.add(word);
  applyFilter();
}

function clearFilter() {
  Object.assign(filter, { search: "", series: "", cause: "", tree: "" });
  filter.verdicts.clear();
  byId("search").value = "";
  for (const list of document.querySelectorAll("#filters select")) list.value = "";
  announce("tree-filter");
  applyFilter();
}

function choice(label, key, name) {
  const list = el("select", { "aria-label": label });
  list.append(el("option", { value: "" }, label));
  const words = state.data.columns[key].d.filter((w) => w !== "");
  for (const word of words) list.append(el("option", { value: word }, visible(word)));
  list.addEventListener("change", () => {
    filter[name] = list.value;
    applyFilter();
  });
  return words.length > 1 || name === "cause" ? list : null;
}

function filterBar() {
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "Search names, types, reasons (/)",
    "aria-label": "Search",
    spellcheck: "false",
  });
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const words = search.value.toLowerCase().split(/\s+/).filter((w) => w);
      filter.search = words.length ? words : "";
      applyFilter();
    }, 120);
  });
  const chips = el("span", { class: "chips", role: "group", "aria-label": "Verdicts" });
  for (const v of view.verdicts) {
    const chip = el("button", { class: `chip tone-${v.tone}`, "data-verdict": v.word });
    chip.append(el("span", { class: "icon", "aria-hidden": "true" }), v.word);
    chip.addEventListener("click", () => toggleVerdict(v.word));
    chips.append(chip);
  }
  return el(
    "div",
    { id: "filters" },
    search,
    chips,
    view.series ? choice("any place", view.series, "series") : null,
    view.cause ? choice("any cause", view.cause, "cause") : null,
    el("button", { id: "clear", hidden: true, onclick: clearFilter }, "Show all"),
    el("span", { id: "where" }),
    el("span", { class: "spacer" }),
    el("span", { id: "count", role: "status", "aria-live": "polite" }),
  );
}

// Numbers by size, what is no number after them, empty cells last in both directions.
function compareNumbers(a, b, _rowA, _rowB, _column, direction) {
  const x = size(a);
  const y = size(b);
  if (Number.isNaN(x) || Number.isNaN(y)) {
    const emptyLast = direction === "asc" ? 1 : -1;
    return Number.isNaN(x) ? (Number.isNaN(y) ? 0 : emptyLast) : -emptyLast;
  }
  return x === y ? 0 : x < y ? -1 : 1;
}

function compareTexts(a, b) {
  const x = a ?? "";
  const y = b ?? "";
  return x === y ? 0 : x < y ? -1 : 1;
}

function tableColumns() {
  const out = [
    {
      title: "#",
      field: "i",
      width: 58,
      hozAlign: "right",
      formatter: (cell) => document.createTextNode(String(cell.getValue() + 1)),
      sorter: (a, b) => a - b,
      headerTooltip: "place in the order of execution",
    },
  ];
  for (const c of view.columns.filter((column) => column.shown && state.data.holds(column.key))) {
    const number = c.kind === "number";
    const column = { title: c.title, field: c.key, headerTooltip: c.help || c.title };
    if (c.width) column.width = c.width;
    else Object.assign(column, { minWidth: c.key === view.name ? 300 : 220, widthGrow: c.key === view.name ? 3 : 2 });
    if (number) column.hozAlign = "right";
    column.formatter =
      c.key === view.verdict
        ? (cell) => badge(cell.getValue())
        : number
          ? (cell) => document.createTextNode(short(cell.getValue()))
          : (cell) => el("bdi", { dir: "ltr" }, visible((cell.getValue() ?? "").replaceAll("\n", "; ")));
    // An element: a text would be taken as markup.
    column.tooltip = (_event, cell) => (cell.getValue() ? el("span", {}, visible(cell.getValue())) : "");
    column.sorter =
      c.key === view.verdict ? (a, b) => rankOf[b] - rankOf[a] : number ? compareNumbers : compareTexts;
    if (number || c.key === view.verdict) column.headerSortStartingDir = "desc";
    out.push(column);
  }
  return out;
}

function buildTable() {
  return new Promise((resolve) => {
    const old = table;
    if (old) old.destroy();
    activeRows = null;
    table = new Tabulator(byId("table"), {
      data: state.data.rows,
      index: "i",
      height: "100%",
      layout: "fitColumns",
      nestedFieldSeparator: false,
      columns: tableColumns(),
      columnDefaults: { resizable: "header" },
      placeholder: "Nothing matches.",
      headerSortClickElement: "header",
      printAsHtml: false,
      autoResize: false, // main.js redraws; a second, later redraw would lose the place
      rowFormatter: (row) => {
        row.getElement().classList.toggle("selected", row.getData().i === state.row);
      },
    });
    table.on("rowClick", (_, row) => selectRow(row.getData().i, false));
    table.on("dataSorted", () => (activeRows = null));
    table.on("tableBuilt", () => {
      applyFilter();
      resolve();
    });
  });
}

function shownRows() {
  activeRows ??= table.getRows("active").map((row) => row.getData().i);
  return activeRows;
}

let marked = -1;
function markRow(reveal) {
  if (!table) return;
  for (const i of [marked, state.row]) {
    const row = i >= 0 && i < state.data.n ? table.getRow(i) : false;
    if (row) row.getElement().classList.toggle("selected", i === state.row);
  }
  marked = state.row;
  if (!reveal || state.row < 0) return;
  if (isFiltered() && !matches(state.data.rows[state.row])) clearFilter();
  table.scrollToRow(state.row, "center", false).catch(() => {});
}

// Moves the choice by so many rows of the table as it is shown.
function moveRow(by) {
  const rows = shownRows();
  if (rows.length === 0) return;
  const at = rows.indexOf(state.row);
  const to = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  selectRow(rows[to]);
}

// The next or previous row with the worst verdict there is, or of any that is wrong.
function moveToWrong(by) {
  const rows = shownRows();
  const wrong = new Set(view.verdicts.filter((v) => v.tone === "bad" || v.tone === "warning").map((v) => v.word));
  let at = rows.indexOf(state.row);
  if (at < 0) at = by > 0 ? -1 : rows.length;
  for (at += by; at >= 0 && at < rows.length; at += by) {
    if (wrong.has(state.data.get(view.verdict, rows[at]))) return selectRow(rows[at]);
  }
}
