// Everything that is known of one row.

// Difference of two numbers relative to the second.
function apart(a, b) {
  if (typeof a !== "number" || typeof b !== "number") return "";
  return a === b ? "0" : b === 0 ? "inf" : short(Math.abs((a - b) / b));
}

function detailTable(block, data, i) {
  const filled = block.lines.filter((line) =>
    line.keys.some((k) => k && !["", null, undefined].includes(data.get(k, i))),
  );
  if (filled.length === 0) return null;
  const body = el("tbody");
  for (const line of filled) {
    const values = line.keys.map((k) => (k ? full(data.get(k, i)) : ""));
    const differ = block.sides && data.get(line.keys[0], i) !== data.get(line.keys[1], i);
    const row = el("tr", { class: differ ? "differ" : "" }, el("th", { scope: "row" }, line.label));
    values.forEach((value, k) => {
      const raw = line.keys[k] ? data.get(line.keys[k], i) : null;
      row.append(el("td", { title: typeof raw === "number" ? String(raw) : undefined }, value));
    });
    if (block.sides) row.append(el("td", {}, apart(...line.keys.map((k) => data.get(k, i)))));
    body.append(row);
  }
  const head = el("tr", {}, el("th", {}, ""));
  for (const h of block.sides ? [...block.heads, "relative"] : block.heads) head.append(el("th", { scope: "col" }, h));
  return el(
    "section",
    {},
    el("h3", {}, block.title),
    el("div", { class: "wide" }, el("table", {}, block.heads.length ? el("thead", {}, head) : null, body)),
  );
}

// The other rows of the same call: which of its inputs and outputs are wrong?
function siblings(data, i) {
  const most = 40;
  const [first, last] = data.groupAround(i);
  if (last - first < 2) return null;
  const list = el("ul", { class: "siblings" });
  for (let k = first; k < last && k < first + most; ++k) {
    const group = data.get(view.group, k);
    let name = data.get(view.name, k);
    if (name.startsWith(group + ".")) name = name.slice(group.length + 1);
    const button = el("button", { class: k === i ? "here" : "", onclick: () => selectRow(k) });
    button.append(badge(data.get(view.verdict, k)), " ", visible(name));
    const value = view.value ? data.get(view.value, k) : null;
    if (value !== null && value !== "") button.append(el("span", { class: "number" }, short(value)));
    list.append(el("li", {}, button));
  }
  if (last - first > most) list.append(el("li", {}, `and ${last - first - most} more`));
  return el("section", {}, el("h3", {}, "The whole call"), list);
}

function textLines(data, i) {
  const text = view.lines ? data.get(view.lines, i) : "";
  if (!text) return null;
  const lines = text.split("\n").map(visible).join("\n");
  return el("section", {}, el("h3", {}, view.lines_title), el("pre", { class: "lines" }, lines));
}

function showDetail() {
  const panel = byId("detail");
  const { data, row } = state;
  panel.replaceChildren();
  const open = data !== null && row >= 0;
  if (panel.hidden === open) {
    panel.hidden = !open;
    if (table) table.redraw();
  }
  if (!open) return;
  const head = el("div", { class: "detail-head" }, badge(data.get(view.verdict, row)));
  const cause = view.cause ? data.get(view.cause, row) : "";
  if (cause) head.append(el("span", { class: "cause" }, visible(cause)));
  head.append(el("button", { class: "close", title: "Close (Esc)", onclick: () => selectRow(-1) }, "close"));
  panel.append(head, el("h2", {}, visible(data.get(view.name, row))));
  const message = view.message ? data.get(view.message, row) : "";
  if (message) {
    const why = el("ul", { class: "why" });
    for (const line of message.split("\n")) why.append(el("li", {}, visible(line)));
    panel.append(el("section", {}, el("h3", {}, "Why"), why));
  }
  const commands = view.commands.map((c) => filledIn(c, data, row)).filter((c) => c !== null);
  if (commands.length) panel.append(el("section", {}, el("h3", {}, "Next"), ...commands.map(command)));
  for (const block of view.details) {
    const made = detailTable(block, data, row);
    if (made) panel.append(made);
  }
  for (const made of [siblings(data, row), textLines(data, row)]) if (made) panel.append(made);
  panel.scrollTop = 0;
}
