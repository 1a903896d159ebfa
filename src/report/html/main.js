// Puts the page together.

const keyHelp = [
  ["j or ↓, k or ↑", "next, previous row"],
  ["n, p", "next, previous wrong row"],
  ["f", "first bad row"],
  ["/", "search"],
  ["Esc", "close the details, leave the search"],
  ["d", "light or dark"],
  ["?", "these keys"],
];

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  redraw();
}

function redraw() {
  if (plot) plot.updateOptions({ axisLineColor: cssValue("--line"), gridLineColor: cssValue("--line") });
  const heat = byId("heat");
  if (heat) drawHeat(heat);
  if (table && !byId("body").hidden) table.redraw();
}

function showKeys() {
  const dialog = byId("key-help");
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

function onKey(event) {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else selectRow(-1);
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !state.data) return;
  const actions = {
    j: () => moveRow(1),
    k: () => moveRow(-1),
    ArrowDown: () => moveRow(1),
    ArrowUp: () => moveRow(-1),
    PageDown: () => moveRow(20),
    PageUp: () => moveRow(-20),
    n: () => moveToWrong(1),
    p: () => moveToWrong(-1),
    f: () => page.parts[state.part].first_row >= 0 && selectRow(page.parts[state.part].first_row),
    "/": () => byId("search").focus(),
    d: toggleTheme,
    "?": showKeys,
  };
  const inTable = state.row >= 0 || byId("explore").contains(event.target);
  if (["ArrowDown", "ArrowUp", "PageDown", "PageUp"].includes(event.key) && !inTable) return;
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

// Lets the browser show what is there before more work.
const breath = () => new Promise((resolve) => setTimeout(resolve, 0));

async function openPart(k) {
  if (state.part === k) return;
  const part = page.parts[k];
  byId("wait").hidden = false;
  await breath();
  state.data = new Data(await unpacked(part.block));
  applyBegins(state.data, part);
  state.part = k;
  state.row = -1;
  marked = -1;
  Object.assign(filter, { series: "", cause: "", tree: "" });
  byId("part-title").textContent = page.parts.length > 1 ? visible(part.label) : "";
  byId("part-note").textContent = visible(part.note);
  byId("filters").replaceWith(filterBar());
  for (const row of document.querySelectorAll("[data-part]")) {
    row.classList.toggle("chosen", row.dataset.part === String(k));
  }
  byId("body").hidden = false;
  await buildTable();
  showDetail();
  if (view.tree) buildTree();
  buildOrigins();
  if (part.first_row >= 0) selectRow(part.first_row);
  byId("wait").hidden = true;
  await breath();
  if (view.value) buildPlot();
  document.documentElement.dataset.ready = String(k);
}

// Paper gets a plain list of the first rows that are not right; the table on screen holds only what is seen.
function preparePrint() {
  const most = 500;
  const box = byId("print");
  box.replaceChildren();
  if (!state.data) return;
  const shown = view.columns.filter((c) => c.shown);
  const rows = isFiltered()
    ? shownRows()
    : state.data.rows.filter((r) => toneOf[r[view.verdict]] !== "good").map((r) => r.i);
  const body = el("tbody");
  for (const i of rows.slice(0, most)) {
    const row = el("tr", {}, el("td", {}, String(i + 1)));
    for (const c of shown) row.append(el("td", {}, short(state.data.get(c.key, i))));
    body.append(row);
  }
  const head = el("tr", {}, el("th", {}, "#"), ...shown.map((c) => el("th", {}, c.title)));
  const what = isFiltered() ? "as filtered" : "that did not pass";
  const rest = rows.length > most ? `, the first ${most} of ${rows.length}` : "";
  box.append(
    el("h2", {}, `${view.rows[0].toUpperCase()}${view.rows.slice(1)} ${what}${rest}`),
    el("table", {}, el("thead", {}, head), body),
  );
}

function buildPage() {
  byId("main").append(
    partsSection(),
    el("p", { id: "wait", class: "hint" }, "Reading the rows …"),
    el(
      "div",
      { id: "body", hidden: true },
      el("h2", { id: "part-title" }),
      el("p", { id: "part-note", class: "help" }),
      el("section", { id: "origins", hidden: true }),
      view.value ? plotSection() : null,
      el(
        "section",
        { id: "explore" },
        el("h2", {}, `All ${view.rows}`),
        el("div", { id: "filters" }),
        el(
          "div",
          { id: "panes" },
          view.tree ? el("nav", { id: "tree", "aria-label": "Tree" }) : null,
          el("div", { id: "table", tabindex: "0" }),
          el("aside", { id: "detail", hidden: true, "aria-label": "Details", "aria-live": "polite" }),
        ),
      ),
      el("section", { id: "print" }),
    ),
  );
  const keys = el("table");
  for (const [key, what] of keyHelp) keys.append(el("tr", {}, el("th", {}, key), el("td", {}, what)));
  document.body.append(
    el("dialog", { id: "key-help" }, el("h2", {}, "Keys"), keys, el("form", { method: "dialog" }, el("button", {}, "Close"))),
  );
  for (const box of document.querySelectorAll("#answer .command")) {
    box.replaceWith(command(box.querySelector("code").textContent));
  }
  for (const tile of document.querySelectorAll("#tiles [data-verdict]")) {
    tile.addEventListener("click", () => {
      toggleVerdict(tile.dataset.verdict);
      byId("explore").scrollIntoView({ behavior: "smooth" });
    });
  }
  byId("theme").addEventListener("click", toggleTheme);
  byId("keys").addEventListener("click", showKeys);
  document.addEventListener("keydown", onKey);
  state.addEventListener("row", (event) => {
    showDetail();
    markRow(event.detail.reveal);
    if (plot) plot.renderGraph_(false);
  });
  state.addEventListener("tree-filter", () => view.tree && markBranches());
  addEventListener("beforeprint", preparePrint);
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

async function main() {
  buildPage();
  redraw();
  // The first one with something wrong, else the first there is.
  let first = page.parts.findIndex((p) => p.first_row >= 0);
  if (first < 0) first = page.parts.findIndex((p) => !p.problem);
  if (first < 0) {
    byId("wait").hidden = true;
    return;
  }
  try {
    await openPart(first);
  } catch (error) {
    byId("wait").textContent = `The rows could not be read: ${error}. A browser of 2023 or later is needed.`;
  }
}

main();
