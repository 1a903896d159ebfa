// The page's data and small helpers. Text from the data reaches the page as text nodes only.

const page = JSON.parse(document.getElementById("page").textContent);
const view = page.view;
const columnOf = Object.fromEntries(view.columns.map((c) => [c.key, c]));
const toneOf = Object.fromEntries(view.verdicts.map((v) => [v.word, v.tone]));
const rankOf = Object.fromEntries(view.verdicts.map((v, i) => [v.word, i])); // 0 is the worst
const byId = (id) => document.getElementById(id);

// An element; children that are no elements become text.
function el(tag, attributes, ...children) {
  const out = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "class") out.className = value;
    else if (key.startsWith("on")) out.addEventListener(key.slice(2), value);
    else if (value === true) out.setAttribute(key, "");
    else if (value !== false && value !== undefined) out.setAttribute(key, value);
  }
  out.append(...children.filter((c) => c !== null && c !== undefined));
  return out;
}

// Control characters and bidirectional overrides as \uXXXX: a name may not change what stands around it.
const hidden = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
function visible(text) {
  return String(text).replace(hidden, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

// Four significant digits, as short as they can be; the details show more.
function short(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return visible(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) return String(Number(value.toPrecision(4)));
  return value.toExponential(2);
}

// Nine digits tell every float32 from its neighbours; the tip has all of a double.
function full(value) {
  if (value === null || value === undefined || value === "") return "–";
  return typeof value === "number" ? String(Number(value.toPrecision(9))) : visible(value);
}

// What a value is for order and plot: a number, Infinity for anything that is no number, NaN for none.
function size(value) {
  if (typeof value === "number") return Math.abs(value);
  return value === "nan" || value === "inf" || value === "-inf" ? Infinity : NaN;
}

function badge(word) {
  const out = el("span", { class: `badge tone-${toneOf[word] || "none"}` });
  out.append(el("span", { class: "icon", "aria-hidden": "true" }), visible(word));
  return out;
}

// A command line with a button that copies it.
function command(text) {
  const button = el("button", { class: "copy", title: "Copy" }, "copy");
  button.addEventListener("click", async () => {
    const done = await copyText(text);
    button.textContent = done ? "copied" : "select and copy by hand";
    setTimeout(() => (button.textContent = "copy"), 1500);
  });
  return el("div", { class: "command" }, el("code", {}, visible(text)), button);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Files opened from disk may have no clipboard; the older way still works.
    const area = el("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function shellQuoted(text) {
  return /^[A-Za-z0-9_.,:\/@%+=-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
}

// A template with {key} for cells of a row; null when a cell is empty.
function filledIn(template, data, i) {
  let whole = true;
  const out = template.replace(/\{(\w+)\}/g, (_, key) => {
    const value = data.get(key, i);
    if (value === null || value === undefined || value === "") whole = false;
    return shellQuoted(String(value));
  });
  return whole ? out : null;
}

async function unpacked(block) {
  const text = byId(`block-${block}`).textContent;
  let bytes;
  if (Uint8Array.fromBase64) {
    bytes = Uint8Array.fromBase64(text);
  } else {
    const packed = atob(text);
    bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; ++i) bytes[i] = packed.charCodeAt(i);
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// The rows of one part, by column.
class Data {
  constructor(block) {
    this.n = block.n;
    this.columns = block.columns;
    // Rows for the table: objects without data of their own.
    const columns = this.columns;
    const Row = class {
      constructor(i) {
        this.i = i;
      }
    };
    for (const [key, column] of Object.entries(columns)) {
      const get = column.d
        ? function () {
            return column.d[column.c[this.i]];
          }
        : function () {
            return column.v[this.i];
          };
      // Tabulator writes back what it read; nothing here ever changes.
      Object.defineProperty(Row.prototype, key, { get, set() {} });
    }
    this.rows = Array.from({ length: this.n }, (_, i) => new Row(i));
    this.lowered = null;
  }

  get(key, i) {
    const column = this.columns[key];
    if (!column) return null;
    return column.d ? column.d[column.c[i]] : column.v[i];
  }

  // Whether any row has something in this column.
  holds(key) {
    const column = this.columns[key];
    if (!column) return false;
    return (column.d || column.v).some((value) => value !== null && value !== undefined && value !== "");
  }

  // Texts for the search, made when it is first used.
  searchText(i) {
    if (!this.lowered) {
      const keys = view.columns.filter((c) => c.kind !== "number" && c.key !== view.lines).map((c) => c.key);
      const lowered = Object.fromEntries(
        keys.filter((k) => this.columns[k].d).map((k) => [k, this.columns[k].d.map((t) => t.toLowerCase())]),
      );
      const plain = keys.filter((k) => !lowered[k]);
      this.lowered = Array.from({ length: this.n }, (_, row) => {
        let out = "";
        for (const k of plain) out += (this.columns[k].v[row] ?? "") + "\n";
        out = out.toLowerCase();
        for (const k in lowered) out += lowered[k][this.columns[k].c[row]] + "\n";
        return out;
      });
    }
    return this.lowered[i];
  }

  // The first and one past the last row of the call that row i belongs to.
  groupAround(i) {
    if (!view.group) return [i, i + 1];
    const group = this.get(view.group, i);
    let first = i;
    let last = i + 1;
    while (first > 0 && this.get(view.group, first - 1) === group) --first;
    while (last < this.n && this.get(view.group, last) === group) ++last;
    return [first, last];
  }
}

// What is shown now; parts tell one another by events on it.
const state = new EventTarget();
Object.assign(state, { data: null, part: -1, row: -1 });
function announce(name, detail) {
  state.dispatchEvent(new CustomEvent(name, { detail }));
}
function selectRow(i, reveal = true) {
  state.row = i;
  announce("row", { reveal });
}
