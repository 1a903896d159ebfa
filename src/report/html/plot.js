// The value of every row against the order of execution, on a log axis.

const kZero = "0";
let plot = null;

// Okabe and Ito's colours, which people with any colour vision can tell apart; shapes say the same again.
const kColours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#882255"];
const kShapes = [
  (c, x, y, r) => c.arc(x, y, r, 0, 2 * Math.PI),
  (c, x, y, r) => {
    c.moveTo(x, y - r * 1.3);
    c.lineTo(x + r * 1.2, y + r);
    c.lineTo(x - r * 1.2, y + r);
    c.closePath();
  },
  (c, x, y, r) => c.rect(x - r, y - r, 2 * r, 2 * r),
  (c, x, y, r) => {
    c.moveTo(x, y - r * 1.4);
    c.lineTo(x + r * 1.4, y);
    c.lineTo(x, y + r * 1.4);
    c.lineTo(x - r * 1.4, y);
    c.closePath();
  },
];

function drawShape(kind) {
  return (_graph, _name, context, x, y, colour, radius) => {
    context.beginPath();
    context.fillStyle = colour;
    kShapes[kind % kShapes.length](context, x, y, radius);
    context.fill();
  };
}

// Exponents of the smallest and largest number above zero; zero and "no number" get lines of their own.
function extent(data) {
  let low = Infinity;
  let high = -Infinity;
  for (let i = 0; i < data.n; ++i) {
    const s = size(data.get(view.value, i));
    if (s > 0 && s < Infinity) {
      low = Math.min(low, s);
      high = Math.max(high, s);
    }
  }
  if (low === Infinity) return { zero: -1, low: 0, high: -1, none: 1 };
  const a = Math.floor(Math.log10(low));
  const b = Math.ceil(Math.log10(high));
  return { zero: a - 1, low: a, high: b, none: b + 1 };
}

function plotRows(data, names, range) {
  const codes = view.series ? data.columns[view.series].c : null;
  const order = view.series ? data.columns[view.series].d.map((w) => names.indexOf(w)) : [0];
  const out = [];
  for (let i = 0; i < data.n; ++i) {
    const s = size(data.get(view.value, i));
    if (Number.isNaN(s)) continue;
    const row = new Array(names.length + 1).fill(null);
    row[0] = i + 1;
    row[1 + order[codes ? codes[i] : 0]] = s === 0 ? range.zero : s === Infinity ? range.none : Math.log10(s);
    out.push(row);
  }
  return out;
}

function exponents(range) {
  const ticks = [{ v: range.zero, label: kZero }];
  const step = Math.max(1, Math.ceil((range.high - range.low) / 8));
  for (let e = range.low; e <= range.high; e += step) ticks.push({ v: e, label: `1e${e}` });
  ticks.push({ v: range.none, label: "NaN, inf" });
  return ticks;
}

function cssValue(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A line where the first bad row is, and one where the chosen row is.
function drawMarks(context, area, graph) {
  const line = (i, colour, text) => {
    const x = graph.toDomXCoord(i + 1);
    if (x < area.x || x > area.x + area.w) return;
    context.save();
    context.strokeStyle = context.fillStyle = colour;
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(x, area.y);
    context.lineTo(x, area.y + area.h);
    context.stroke();
    context.font = "11px sans-serif";
    const left = x > area.x + area.w * 0.7;
    context.textAlign = left ? "right" : "left";
    if (text) context.fillText(text, x + (left ? -5 : 5), area.y + 11);
    context.restore();
  };
  const part = page.parts[state.part];
  if (part && part.first_row >= 0) line(part.first_row, cssValue("--bad"), "first bad");
  if (state.row >= 0) line(state.row, cssValue("--ink"), "");
}

function legend(names) {
  const out = el("div", { id: "legend" });
  names.forEach((name, k) => {
    const mark = el("canvas", { width: 14, height: 14, "aria-hidden": "true" });
    drawShape(k)(null, "", mark.getContext("2d"), 7, 7, kColours[k % kColours.length], 4);
    const box = el("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => plot.setVisibility(k, box.checked));
    out.append(el("label", {}, box, mark, visible(name)));
  });
  return out;
}

function buildPlot() {
  const data = state.data;
  const box = byId("plot");
  const range = extent(data);
  const names = view.series ? data.columns[view.series].d.filter((w) => w !== "") : [view.value_title];
  if (view.series && names.length < data.columns[view.series].d.length) names.push("");
  const rows = plotRows(data, names, range);
  if (plot) plot.destroy();
  plot = null;
  byId("plot-section").hidden = rows.length === 0;
  if (rows.length === 0) return;
  byId("legend").replaceWith(legend(names));
  const radius = rows.length > 20000 ? 1.5 : rows.length > 2000 ? 2 : 3;
  plot = new Dygraph(box, rows, {
    labels: ["row", ...names.map((n, k) => n || `series ${k + 1}`)],
    colors: names.map((_, k) => kColours[k % kColours.length]),
    strokeWidth: 0,
    drawPoints: true,
    pointSize: radius,
    highlightCircleSize: radius + 3,
    legend: "never",
    connectSeparatedPoints: false,
    animatedZooms: false,
    valueRange: [range.zero - 0.5, range.none + 0.5],
    axisLineColor: cssValue("--line"),
    gridLineColor: cssValue("--line"),
    axisLabelFontSize: 12,
    rightGap: 12,
    xRangePad: 8,
    axes: {
      x: { axisLabelFormatter: (v) => (Number.isInteger(v) ? String(v) : "") },
      y: { ticker: () => exponents(range), axisLabelWidth: 62 },
    },
    series: Object.fromEntries(
      names.map((n, k) => [
        n || `series ${k + 1}`,
        { drawPointCallback: drawShape(k), drawHighlightPointCallback: drawShape(k) },
      ]),
    ),
    underlayCallback: drawMarks,
    highlightCallback: (_event, x) => {
      const i = x - 1;
      byId("plot-hint").textContent =
        `${visible(data.get(view.name, i))}: ${short(data.get(view.value, i))} (${data.get(view.verdict, i)})`;
    },
    unhighlightCallback: () => (byId("plot-hint").textContent = kPlotHint),
    pointClickCallback: (_event, point) => selectRow(point.xval - 1),
    clickCallback: (_event, x) => {
      if (Number.isFinite(x) && x >= 1 && x <= data.n) selectRow(Math.round(x) - 1);
    },
  });
}

const kPlotHint = "Drag to zoom, double-click to see all, click a point for its row.";

function plotSection() {
  return el(
    "section",
    { id: "plot-section" },
    el("h2", {}, `${view.value_title} in order of execution`),
    view.value_help ? el("p", { class: "help" }, view.value_help) : null,
    el("div", { id: "legend" }),
    el("div", { id: "plot", role: "img", "aria-label": `${view.value_title} in order of execution; the same figures stand in the table below` }),
    el("p", { id: "plot-hint", class: "hint" }, kPlotHint),
  );
}
