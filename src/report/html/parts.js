// Many parts (ranks, steps) side by side, and where errors began in the one that is shown.

// From dark to bright by exponent, readable in grey as well (after viridis).
const kRamp = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"];
function heatColour(value) {
  if (value === null) return cssValue("--line");
  if (value === "nan") return cssValue("--bad");
  if (value === 0) return cssValue("--good-wash");
  const place = Math.round(Math.log10(value)) + 8; // 1e-8 and below is the darkest
  return kRamp[Math.min(kRamp.length - 1, Math.max(0, place))];
}

const kHeatRow = 16;
const kHeatLabel = 110; // pixels on the left for the names

function drawHeat(canvas) {
  const rows = page.parts.length;
  const width = canvas.parentElement.clientWidth;
  const wide = width - kHeatLabel;
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = `${rows * kHeatRow}px`;
  canvas.width = width * scale;
  canvas.height = rows * kHeatRow * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  page.parts.forEach((part, r) => {
    const y = r * kHeatRow;
    const bins = part.strip.length;
    context.font = "11px sans-serif";
    context.fillStyle = cssValue("--muted");
    context.fillText(visible(part.label), 4, y + 12, kHeatLabel - 10);
    part.strip.forEach((value, k) => {
      context.fillStyle = heatColour(value);
      context.fillRect(kHeatLabel + (k * wide) / bins, y + 1, wide / bins + 0.5, kHeatRow - 2);
    });
    if (bins === 0) {
      context.fillStyle = cssValue("--bad");
      context.fillText(visible(part.problem), kHeatLabel, y + 12, wide - 8);
    } else if (part.first_row >= 0) {
      const x = kHeatLabel + ((part.first_row + 0.5) / part.rows) * wide;
      context.strokeStyle = cssValue("--ink");
      context.lineWidth = 1.5;
      context.strokeRect(x - 3, y + 1, 6, kHeatRow - 2);
    }
  });
}

function heatKey() {
  const key = el("div", { class: "heat-key" });
  const add = (colour, text) => {
    const box = el("span", { class: "swatch" });
    box.style.background = colour;
    key.append(box, text);
  };
  add(heatColour(0), "0");
  kRamp.forEach((colour, k) => add(colour, k === 0 ? "≤ 1e-8" : k === 7 ? "≥ 0.1" : `1e${k - 8}`));
  add(heatColour("nan"), "NaN or infinity");
  add(heatColour(null), "no figure");
  return key;
}

function heatSection() {
  const canvas = el("canvas", { id: "heat", role: "img", "aria-label": "largest error in pieces of the execution, a line for each; the same stands in the list below" });
  const hint = el("p", { class: "hint" }, "Boxes mark the first bad place. Click to open.");
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const r = Math.floor((event.clientY - box.top) / kHeatRow);
    const part = page.parts[Math.min(page.parts.length - 1, Math.max(0, r))];
    const along = (event.clientX - box.left - kHeatLabel) / (box.width - kHeatLabel);
    const bin = Math.floor(along * part.strip.length);
    return { part, index: page.parts.indexOf(part), bin: Math.min(Math.max(0, bin), part.strip.length - 1) };
  };
  canvas.addEventListener("mousemove", (event) => {
    const { part, bin } = at(event);
    const value = part.strip[bin];
    hint.textContent = part.problem
      ? `${visible(part.label)}: ${visible(part.problem)}`
      : `${visible(part.label)}, ${Math.round((bin / part.strip.length) * 100)} % of the way: largest ${value === null ? "–" : short(value)}`;
  });
  canvas.addEventListener("click", async (event) => {
    const { part, index, bin } = at(event);
    if (part.problem) return;
    await openPart(index);
    const from = Math.floor((bin * part.rows) / part.strip.length);
    const to = Math.max(from + 1, Math.floor(((bin + 1) * part.rows) / part.strip.length));
    let worst = from;
    for (let i = from; i < to; ++i) {
      if (!(size(state.data.get(view.value, i)) <= size(state.data.get(view.value, worst)))) worst = i;
    }
    selectRow(worst);
  });
  return el("div", {}, heatKey(), el("div", { class: "heat-box" }, canvas), hint);
}

function partsSection() {
  if (page.parts.length < 2) return el("section", { id: "parts", hidden: true });
  const body = el("tbody");
  page.parts.forEach((part, k) => {
    const row = el("tr", { "data-part": String(k) });
    const name = part.problem
      ? el("span", {}, visible(part.label))
      : el("button", { class: "link", onclick: () => openPart(k) }, visible(part.label));
    row.append(el("th", { scope: "row" }, name));
    if (part.problem) row.append(el("td", { colspan: String(view.verdicts.length + 1), class: "problem" }, visible(part.problem)));
    else {
      view.verdicts.forEach((v, c) => {
        row.append(el("td", { class: part.counts[c] ? `number tone-${v.tone}` : "number none" }, String(part.counts[c])));
      });
      row.append(el("td", {}, visible(part.first)));
    }
    body.append(row);
  });
  const head = el("tr", {}, el("th", { scope: "col" }, page.part_name));
  for (const v of view.verdicts) head.append(el("th", { scope: "col" }, v.word));
  head.append(el("th", { scope: "col" }, "first bad"));
  return el(
    "section",
    { id: "parts" },
    el("h2", {}, `${page.parts.length} ${page.part_name}s`),
    heatSection(),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), body)),
  );
}

// Where a part says itself where errors begin, its rows begin there, follow, or have no cause.
function applyBegins(data, part) {
  const column = data.columns[view.cause];
  if (!column || part.begins.length === 0) return;
  const groups = new Set(part.begins.map(([group]) => group));
  const told = new Set();
  let begun = false;
  let first = -1;
  const causes = new Array(data.n).fill(0);
  for (let i = 0; i < data.n; ++i) {
    const group = data.get(view.group, i);
    const here = groups.has(group);
    const named = data.get(view.name, i) === part.first_name;
    if (named) first = i;
    const wrong = ["bad", "warning"].includes(toneOf[data.get(view.verdict, i)]);
    if (here && (wrong || named)) {
      causes[i] = 1;
      told.add(group);
    } else if (!here && wrong && begun) causes[i] = 2;
    begun ||= here;
  }
  // What is found in rows that are all right by themselves begins in its first row.
  for (let i = 0; i < data.n && told.size < groups.size; ++i) {
    const group = data.get(view.group, i);
    if (!groups.has(group) || told.has(group)) continue;
    causes[i] = 1;
    told.add(group);
    if (first < 0 && group === part.begins[0][0]) first = i;
  }
  column.d = ["", view.cause_begins, view.cause_follows];
  column.c = causes;
  delete column.v;
  if (first >= 0) part.first_row = first;
}

// Calls with right inputs and a wrong result, each with what followed it.
function findOrigins(data) {
  const out = [];
  const column = data.columns[view.cause];
  if (!column) return out;
  let lastGroup = null;
  for (let i = 0; i < data.n; ++i) {
    const cause = column.d[column.c[i]];
    if (!cause) continue;
    const group = data.get(view.group, i);
    if (cause === view.cause_begins) {
      const here = out.at(-1);
      if (here && here.group === group) continue;
      out.push({ group, row: i, followers: [], rows: 0 });
    } else {
      if (out.length === 0) out.push({ group: "", row: -1, followers: [], rows: 0 });
      const origin = out.at(-1);
      origin.rows += 1;
      if (group !== lastGroup) origin.followers.push(i);
    }
    lastGroup = group;
  }
  return out;
}

function followerList(origin) {
  const most = 200;
  const list = el("ul", { class: "names" });
  for (const i of origin.followers.slice(0, most)) {
    const group = visible(state.data.get(view.group, i));
    list.append(el("li", {}, el("button", { class: "link", onclick: () => selectRow(i) }, group)));
  }
  const rest = origin.followers.length - most;
  if (rest > 0) list.append(el("li", {}, `and ${rest} more`));
  return list;
}

function originItem(origin) {
  const item = el("li", {});
  if (origin.row >= 0) {
    const value = view.value ? state.data.get(view.value, origin.row) : null;
    const known = page.parts[state.part].begins.find(([group]) => group === origin.group);
    const message = known ? known[1] : view.message ? state.data.get(view.message, origin.row).split("\n")[0] : "";
    item.append(
      badge(state.data.get(view.verdict, origin.row)),
      " ",
      el("button", { class: "link strong", onclick: () => selectRow(origin.row) }, visible(state.data.get(view.name, origin.row))),
      el("span", { class: "muted" }, ` ${typeof value === "number" ? short(value) + " " : ""}${visible(message)}`),
    );
  } else {
    item.append(el("span", {}, "Without a known beginning"));
  }
  const calls = origin.followers.length;
  if (calls > 0) {
    const fold = el("details", {}, el("summary", {}, `${calls} ${calls === 1 ? "call" : "calls"} behind or around it, wrong as a consequence (${origin.rows} ${view.rows})`));
    fold.addEventListener("toggle", () => fold.open && fold.children.length === 1 && fold.append(followerList(origin)));
    item.append(fold);
  }
  return item;
}

function buildOrigins() {
  const most = 100;
  const box = byId("origins");
  const origins = view.cause ? findOrigins(state.data) : [];
  box.hidden = origins.length === 0;
  if (box.hidden) return;
  const list = el("ol", {});
  for (const origin of origins.slice(0, most)) list.append(originItem(origin));
  if (origins.length > most) list.append(el("li", {}, `and ${origins.length - most} more: filter by cause below`));
  const searched = page.parts[state.part].begins.length > 0;
  const what = searched ? "What was found, in order of execution." : "Calls whose inputs agree and whose results do not, in order of execution.";
  box.replaceChildren(
    el("h2", {}, "Where errors begin"),
    el("p", { class: "help" }, `${what} What they passed on is folded below them.`),
    list,
  );
}
