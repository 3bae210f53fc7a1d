/* Shares, the timeline, the memory map and tables, as SVG and HTML. */

const SVG = "http://www.w3.org/2000/svg";
const SEVERAL = 8;

function tag(name, attributes, ...children) {
  const node = document.createElement(name);
  Object.entries(attributes || {}).forEach(([key, value]) => node.setAttribute(key, value));
  node.append(...children.filter((child) => child !== null));
  return node;
}

function shape(name, attributes, title) {
  const node = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  if (title) { const hint = document.createElementNS(SVG, "title"); hint.textContent = title; node.append(hint); }
  return node;
}

function label(x, y, text, attributes) {
  const node = shape("text", { x, y, ...attributes });
  node.textContent = text;
  return node;
}

function bytes(count) {
  if (count < 1024) return `${count} B`;
  const power = Math.min(4, Math.floor(Math.log2(count) / 10));
  return `${(count / 2 ** (10 * power)).toFixed(count / 2 ** (10 * power) < 10 ? 2 : 1)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

function milliseconds(ms) {
  if (ms >= 1) return `${ms.toFixed(2)} ms`;
  return ms >= 1e-3 || ms === 0 ? `${(ms * 1e3).toFixed(1)} µs` : `${(ms * 1e6).toFixed(0)} ns`;
}

function percent(share) { return `${(100 * share).toFixed(share < 0.1 && share > 0 ? 1 : 0)} %`; }

function empty(text) { return tag("p", { class: "empty" }, text); }

/* What each kernel takes: measured where there is a profile, else what it took when it was tuned; in milliseconds. */
function timesOf(report) {
  const kernels = report.kernels;
  if (!report.profile) {
    const rows = kernels.map((k, i) => ({ name: nameOf(k), kernel: i, ms: k.tuned_nanoseconds / 1e6 }));
    return { measured: false, rows: rows.filter((row) => row.ms > 0) };
  }
  let at = 0;
  const rows = report.profile.map((row) => {
    const found = kernels.findIndex((k, i) => i >= at && nameOf(k) === row.name);
    if (found >= 0) at = found + 1;
    return { name: row.name, kernel: found < 0 ? null : found, ms: row.medianMs, implementation: row.implementation };
  });
  return { measured: true, rows };
}

function nameOf(kernel) { return kernel.layers.length ? kernel.layers.join(" + ") : kernel.kernel; }

/* A bar of shares: [[name, share], ...]. */
function shareBar(shares, title) {
  const bar = tag("div", { class: "bar", role: "img", "aria-label": `${title}: ` + shares.map(([n, s]) => `${n} ${percent(s)}`).join(", ") });
  const key = tag("div", { class: "key" });
  shares.forEach(([name, share], i) => {
    const part = tag("span", { class: `series-${i % SEVERAL}`, style: `width:${100 * share}%`, title: `${name}: ${percent(share)}` });
    bar.append(part);
    key.append(tag("span", {}, tag("i", { class: `series-${i % SEVERAL}` }), `${name} ${percent(share)}`));
  });
  return tag("div", { class: "shares" }, tag("h3", {}, title), bar, key);
}

function precisionShares(report, times) {
  const box = tag("div", { class: "grid" });
  const largestFirst = (shares) => Object.entries(shares).sort((a, b) => b[1] - a[1]);
  const layers = largestFirst(report.layers_per_dtype);
  box.append(layers.length ? shareBar(layers, "layers") : empty("There are no layers."));
  const arithmetic = largestFirst(report.arithmetic_per_dtype);
  if (arithmetic.length) box.append(shareBar(arithmetic, "arithmetic"));
  const sums = new Map();
  times.rows.forEach((row) => {
    const kernel = row.kernel === null ? null : report.kernels[row.kernel];
    const dtype = kernel ? (kernel.tf32 ? "tf32" : kernel.dtype) : "between stages";
    sums.set(dtype, (sums.get(dtype) || 0) + row.ms);
  });
  const total = [...sums.values()].reduce((a, b) => a + b, 0);
  if (total > 0) {
    const shares = [...sums].map(([name, ms]) => [name, ms / total]).sort((a, b) => b[1] - a[1]);
    box.append(shareBar(shares, times.measured ? "measured time" : "time when tuned"));
  }
  return box;
}

/* All kernels one after another, and the slowest of them. */
function timeline(report, times, choose) {
  const total = times.rows.reduce((sum, row) => sum + row.ms, 0);
  if (!total) return empty("No times are known: nothing was timed. Measure with neurenix inspect MODEL --profile --html FILE, or model.report(model.profile()).save(...).");
  const box = tag("div", {});
  const what = times.measured ? "measured (median of the runs)" : "as timed when the engine was tuned; kernels that were not timed are left out. Measure with neurenix inspect --profile";
  box.append(tag("p", { class: "soft" }, `${milliseconds(total)} in ${times.rows.length} kernels, ${what}.`));
  const wide = 1200, tall = 74;
  const picture = shape("svg", { viewBox: `0 0 ${wide} ${tall}`, class: "strip", role: "img" }, "timeline by kernel");
  let x = 0;
  times.rows.forEach((row) => {
    const w = (row.ms / total) * wide;
    const op = row.kernel === null ? "" : report.kernels[row.kernel].kernel;
    const kind = kindOf(op.split("+")[0] || "other");
    const text = `${row.name}\n${op} ${row.implementation || ""}\n${milliseconds(row.ms)}, ${percent(row.ms / total)}`;
    const block = shape("rect", { x: x.toFixed(2), y: 6, width: Math.max(w - (w > 3 ? 0.6 : 0), 0.4).toFixed(2), height: 42, fill: `var(--kind-${kind})` }, text);
    if (row.kernel !== null) { block.classList.add("link"); block.addEventListener("click", () => choose(row.kernel)); }
    picture.append(block);
    if (w > 46) picture.append(label(x + w / 2, 31, shorten(op, Math.floor(w / 8)), { class: "inside" }));
    x += w;
  });
  for (let i = 0; i <= 6; i++) {
    const anchor = i === 0 ? "start" : i === 6 ? "end" : "middle";
    picture.append(label((i / 6) * wide, 66, milliseconds((total * i) / 6), { "text-anchor": anchor, class: "tick" }));
  }
  box.append(picture, tag("h3", {}, "the slowest"));
  const slowest = times.rows.slice().sort((a, b) => b.ms - a.ms).slice(0, 12);
  const list = tag("ol", { class: "slowest" });
  slowest.forEach((row) => {
    const open = tag("button", { class: "plain", title: row.name }, shorten(row.name, 60));
    if (row.kernel !== null) open.addEventListener("click", () => choose(row.kernel));
    const kernel = row.kernel === null ? null : report.kernels[row.kernel];
    list.append(tag("li", {}, tag("span", { class: "meter" }, tag("span", { style: `width:${(100 * row.ms) / slowest[0].ms}%` })),
      tag("span", { class: "number" }, milliseconds(row.ms)), tag("span", { class: "number soft" }, percent(row.ms / total)),
      open, tag("span", { class: "soft" }, kernel ? kernel.kernel : "")));
  });
  box.append(list);
  return box;
}

/* Offsets upwards, kernels to the right: which bytes belong to whom, when. */
function memoryMap(report) {
  const memory = report.memory, box = tag("div", {});
  const spaces = [...new Set(memory.blocks.map((block) => block.space))];
  if (!spaces.length) return empty("Nothing lies in an arena: inputs, outputs and constants are all there is.");
  box.append(tag("p", { class: "soft" }, `${bytes(memory.arena)} where the activations sum up to ${bytes(memory.activations_unshared)}: ${percent(memory.reuse)} saved, as tensors that live at different times share their bytes. Weights: ${bytes(memory.weights)}.`));
  spaces.forEach((space) => {
    if (spaces.length > 1) box.append(tag("h3", {}, space));
    box.append(arena(memory.blocks.filter((block) => block.space === space), report.kernels.length));
  });
  return box;
}

function arena(blocks, kernels) {
  const wide = 1200, tall = 420, left = 84, foot = 40;
  const total = Math.max(...blocks.map((block) => block.offset + block.bytes));
  const count = Math.max(kernels, 1 + Math.max(...blocks.map((block) => block.last)));
  const picture = shape("svg", { viewBox: `0 0 ${wide} ${tall}`, class: "arena", role: "img" }, "memory map of the arena");
  const x = (kernel) => left + (kernel / count) * (wide - left - 4);
  const y = (offset) => (tall - foot) * (1 - offset / total) + 2;
  for (let i = 0; i <= 4; i++) {
    const at = y((total * i) / 4);
    picture.append(shape("line", { x1: left, x2: wide - 4, y1: at, y2: at, class: "grid-line" }));
    picture.append(label(left - 8, Math.max(at + 4, 13), bytes((total * i) / 4), { "text-anchor": "end", class: "tick" }));
  }
  for (let i = 0; i <= 8; i++) {
    const kernel = Math.round(((count - 1) * i) / 8);
    if (i && kernel === Math.round(((count - 1) * (i - 1)) / 8)) continue;
    picture.append(label(x(kernel + 0.5), tall - 22, `${kernel}`, { "text-anchor": i === 8 ? "end" : "middle", class: "tick" }));
  }
  picture.append(label((wide + left) / 2, tall - 5, "kernel", { "text-anchor": "middle", class: "tick" }));
  blocks.slice().sort((a, b) => b.bytes - a.bytes).forEach((block, i) => {
    const workspace = block.tensors.length === 0;
    const name = workspace ? `workspace of kernel ${block.first}` : block.tensors.join(", ");
    const w = x(block.last + 1) - x(block.first), top = y(block.offset + block.bytes), h = y(block.offset) - top;
    picture.append(shape("rect", { x: x(block.first).toFixed(2), y: top.toFixed(2), width: Math.max(w - 0.5, 0.5).toFixed(2),
      height: Math.max(h - 0.5, 0.5).toFixed(2), class: workspace ? "workspace" : `series-${i % SEVERAL}` },
    `${name}\n${bytes(block.bytes)} at ${bytes(block.offset)}\nkernels ${block.first} to ${block.last}`));
    const room = Math.floor(w / 7) - 2;
    if (room >= 5 && h >= 16) picture.append(label(x(block.first) + w / 2, top + h / 2 + 4, shorten(workspace ? "workspace" : block.tensors[0], room), { class: "inside" }));
  });
  return picture;
}

/* A table that can be sorted by a click on a head and filtered. columns: [[head, value of a row, is a number], ...]. */
function table(columns, rows, onRow) {
  const body = tag("tbody", {});
  const lines = rows.map((row, at) => {
    const line = tag("tr", {});
    columns.forEach(([, value, numeric]) => {
      const shown = value(row, at);
      line.append(tag("td", numeric ? { class: "number" } : `${shown}`.length < 14 ? { class: "short" } : {}, shown instanceof Node ? shown : `${shown ?? ""}`));
    });
    if (onRow) {
      line.tabIndex = 0;
      line.classList.add("link");
      line.addEventListener("click", () => onRow(row, at));
      line.addEventListener("keydown", (event) => { if (event.key === "Enter") onRow(row, at); });
    }
    body.append(line);
    return { row, at, line, text: line.textContent.toLowerCase() };
  });
  const head = tag("tr", {});
  columns.forEach(([name, value, numeric], column) => {
    const button = tag("button", { class: "plain" }, name);
    const cell = tag("th", { scope: "col", "aria-sort": "none", ...(numeric ? { class: "number" } : {}) }, button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "descending";
      head.querySelectorAll("th").forEach((other) => other.setAttribute("aria-sort", "none"));
      cell.setAttribute("aria-sort", down ? "ascending" : "descending");
      const key = (entry) => {
        const text = entry.line.children[column].textContent;
        return numeric ? parseFloat(text) || 0 : text;
      };
      lines.sort((a, b) => (down ? 1 : -1) * (numeric ? key(a) - key(b) : key(a).localeCompare(key(b))));
      body.append(...lines.map((entry) => entry.line));
    });
    head.append(cell);
  });
  const frame = tag("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" },
    tag("table", {}, tag("thead", {}, head), body));
  const filter = (words) => lines.forEach((entry) => { entry.line.hidden = !entry.text.includes(words.trim().toLowerCase()); });
  return { frame, filter, lines };
}
