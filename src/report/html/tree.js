// Rows below the branches of a tree, each branch in the colour of its worst row.

function makeTree(data) {
  const column = data.columns[view.tree];
  const worst = column.d.map(() => view.verdicts.length);
  const wrong = column.d.map(() => 0);
  const rows = column.d.map(() => 0);
  const first = column.d.map(() => -1);
  const isWrong = view.verdicts.map((v) => v.tone === "bad" || v.tone === "warning");
  for (let i = 0; i < data.n; ++i) {
    const at = column.c[i];
    const rank = rankOf[data.get(view.verdict, i)] ?? view.verdicts.length;
    worst[at] = Math.min(worst[at], rank);
    wrong[at] += isWrong[rank] ? 1 : 0;
    rows[at] += 1;
    if (first[at] < 0) first[at] = i;
  }
  const root = { label: "", path: "", children: new Map(), worst: view.verdicts.length, wrong: 0, rows: 0 };
  const order = column.d.map((_, k) => k).sort((a, b) => first[a] - first[b]);
  for (const k of order) {
    if (rows[k] === 0) continue;
    let node = root;
    const labels = column.d[k] === "" ? [] : column.d[k].split("\u001f");
    for (let depth = 0; depth <= labels.length; ++depth) {
      node.worst = Math.min(node.worst, worst[k]);
      node.wrong += wrong[k];
      node.rows += rows[k];
      if (depth === labels.length) break;
      if (!node.children.has(labels[depth])) {
        const path = labels.slice(0, depth + 1).join("\u001f");
        const child = { label: labels[depth], path, children: new Map(), worst: view.verdicts.length, wrong: 0, rows: 0 };
        node.children.set(labels[depth], child);
      }
      node = node.children.get(labels[depth]);
    }
  }
  return root;
}

function branchLabel(node) {
  const tone = node.worst < view.verdicts.length ? view.verdicts[node.worst].tone : "none";
  const out = el("button", { class: `branch tone-${tone}`, title: visible(node.path.split("\u001f").join(" / ")) });
  out.dataset.path = node.path;
  out.append(
    el("span", { class: "icon", "aria-hidden": "true" }),
    el("span", { class: "branch-name" }, visible(node.label)),
    el("span", { class: "number" }, node.wrong ? `${node.wrong} of ${node.rows}` : String(node.rows)),
  );
  out.addEventListener("click", (event) => {
    event.preventDefault(); // the fold around it opens by its own triangle
    filter.tree = filter.tree === node.path ? "" : node.path;
    announce("tree-filter");
    applyFilter();
  });
  return out;
}

// Children are made when their branch is opened: a tree may have 100,000 of them.
function branch(node) {
  if (node.children.size === 0) return el("li", { class: "leaf" }, branchLabel(node));
  const fold = el("details", {}, el("summary", {}, branchLabel(node)));
  let made = false;
  fold.fill = () => {
    if (made) return;
    made = true;
    fold.append(branches(node));
  };
  fold.addEventListener("toggle", () => fold.open && fold.fill());
  fold.node = node;
  return el("li", {}, fold);
}

function branches(node, from = 0) {
  const most = 300;
  const list = el("ul", {});
  const children = [...node.children.values()];
  for (const child of children.slice(from, from + most)) list.append(branch(child));
  if (children.length > from + most) {
    const more = el("button", {}, `${children.length - from - most} more`);
    more.addEventListener("click", () => list.replaceChild(branches(node, from + most), more.parentNode));
    list.append(el("li", {}, more));
  }
  return list;
}

// Opens the folds on the way to a path.
function openTo(path) {
  let list = byId("tree");
  const labels = path.split("\u001f");
  for (let depth = 1; depth <= labels.length; ++depth) {
    const want = labels.slice(0, depth).join("\u001f");
    const fold = [...list.querySelectorAll("details")].find((d) => d.node && d.node.path === want);
    if (!fold) return;
    fold.fill();
    fold.open = true;
    list = fold;
  }
}

function buildTree() {
  const box = byId("tree");
  const root = makeTree(state.data);
  box.replaceChildren(branches(root));
  // A chain of only children is opened: it says nothing by itself.
  let fold = box.querySelector("details");
  while (fold && box.querySelectorAll("details").length === 1) {
    fold.fill();
    fold.open = true;
    fold = fold.querySelector("details");
  }
  const part = page.parts[state.part];
  if (part.first_row >= 0) openTo(state.data.get(view.tree, part.first_row));
}

function markBranches() {
  for (const button of byId("tree").querySelectorAll(".branch")) {
    button.classList.toggle("chosen", filter.tree !== "" && button.dataset.path === filter.tree);
  }
}
