/* Puts the page together. */

const report = JSON.parse(document.getElementById("report").textContent);
const times = timesOf(report);
const views = {};
const at = (id) => document.getElementById(id);

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("neurenix-theme", name); } catch { /* A file may have no storage. */ }
  at("theme").value = name;
  Object.values(views).forEach((view) => view.paint());
}

function card(name, value, more) {
  return tag("div", { class: "card" }, tag("b", {}, value), tag("span", {}, name), more ? tag("small", {}, more) : null);
}

function summary() {
  const before = report.graph.before, after = report.graph.after.reduce((sum, g) => sum + g.layers.length, 0);
  const total = times.rows.reduce((sum, row) => sum + row.ms, 0);
  const cards = at("cards");
  cards.append(card("precision asked for", report.precision));
  cards.append(card("kernels", `${report.kernels.length}`, before ? `${before.layers.length} layers, ${after} after the passes` : `${after} layers`));
  if (total) cards.append(card(times.measured ? "measured" : "when tuned", milliseconds(total), `${times.rows.length} kernels timed`));
  cards.append(card("activations", bytes(report.memory.arena), `${percent(report.memory.reuse)} saved by sharing`));
  cards.append(card("weights", bytes(report.memory.weights)));
  cards.append(card("built in", `${report.build_seconds.toFixed(2)} s`));
  cards.append(card(report.providers.length > 1 ? "layers per provider" : "provider", report.providers.map(([name, count]) => (report.providers.length > 1 ? `${name} ${count}` : name)).join(", ") || "none"));
  at("machine").textContent = `neurenix ${report.version || ""} on ${report.device || "an unknown machine"}`;
}

function details(node) {
  const box = at("details");
  box.replaceChildren();
  if (!node) { box.append(tag("p", { class: "soft" }, "Choose a layer to see what it is, and what became of it.")); return; }
  box.append(tag("h3", {}, node.op), tag("p", { class: "name" }, node.name));
  const facts = tag("dl", {});
  const fact = (name, value) => { if (value) facts.append(tag("dt", {}, name), tag("dd", {}, value)); };
  fact("gives", node.type);
  Object.entries(node.attrs).forEach(([name, value]) => fact(name, value));
  fact("weights", (node.weights || []).join("\n"));
  const kernel = node.kernel === null || node.kernel === undefined ? null : report.kernels[node.kernel];
  if (kernel) {
    fact("kernel", `#${node.kernel} ${kernel.kernel}, ${kernel.provider}`);
    fact("runs as", kernel.implementation || "nothing to do: in place");
    fact("form", kernel.form);
    if (kernel.layers.length > 1) fact("fused", kernel.layers.join("\n"));
    if (kernel.tuned_nanoseconds) fact("when tuned", milliseconds(kernel.tuned_nanoseconds / 1e6));
    const row = times.measured && times.rows.find((r) => r.kernel === node.kernel);
    if (row) fact("measured", milliseconds(row.ms));
  }
  report.refusals.filter((r) => r.layer === node.name).forEach((r) => fact(`refused by ${r.provider}`, `${r.reason} ${r.hint}`));
  if (node.sources.length) fact("from the model's", node.sources.join("\n"));
  box.append(facts);
}

function graphs() {
  const make = (side, list, absent) => {
    const box = at(`graph-${side}`);
    if (!list.length || !list.some((graph) => graph.layers.length || graph.inputs.length)) {
      box.querySelector(".canvas").replaceChildren(empty(absent));
      box.classList.add("without");
      return;
    }
    const other = side === "before" ? "after" : "before";
    views[side] = new GraphView(box.querySelector(".canvas"), list, (node) => {
      details(node);
      if (!views[other]) return;
      views[other].choose(null, true);
      const found = views[other].mark(node ? node.sources : []);
      if (found.length) views[other].show(found[0]);
    });
    const layers = list.reduce((sum, graph) => sum + graph.layers.length, 0);
    box.querySelector("h3 span").textContent = ` ${layers} layers`;
  };
  make("before", report.graph.before ? [report.graph.before] : [], "The engine came from a file, which keeps the optimised network alone.");
  make("after", report.graph.after, "There are no layers left: the answers are constants, or the inputs themselves.");
  const legend = at("legend");
  KINDS.forEach(([name], kind) => legend.append(tag("span", {}, tag("i", { class: `kind-${kind}` }), name)));
  legend.append(tag("span", {}, tag("i", { class: "joined" }), "one kernel"));
  shown(views.before && window.innerWidth > 900 ? "both" : "after");
  details(null);
}

function shown(which) {
  at("graphs").dataset.shown = which;
  document.querySelectorAll("[data-show]").forEach((b) => b.setAttribute("aria-pressed", `${b.dataset.show === which}`));
  Object.values(views).forEach((view) => { view.resize(); view.home(); });
}

function searching() {
  const field = at("search"), result = at("found");
  let hits = [], turn = 0;
  field.addEventListener("input", () => {
    hits = Object.entries(views).flatMap(([side, view]) => view.search(field.value).map((i) => [side, i]));
    turn = 0;
    result.textContent = field.value.trim() ? `${hits.length} found${hits.length ? ", Enter shows the next" : ""}` : "";
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !hits.length) return;
    const step = event.shiftKey ? hits.length - 1 : 1;
    const [side, i] = hits[turn % hits.length];
    turn = (turn + step) % hits.length;
    views[side].show(i);
    views[side].chosen = i;
    details(views[side].nodes[i]);
    result.textContent = `${hits.length} found, ${side}: ${views[side].nodes[i].name}`;
  });
}

function choose(kernel) {
  const view = views.after;
  const node = view ? view.nodes.findIndex((n) => n.kernel === kernel) : -1;
  if (node < 0) return;
  if (at("graphs").dataset.shown === "before") shown("after");
  view.choose(node);
  view.show(node);
  at("graph").scrollIntoView({ behavior: "smooth" });
}

function kernels() {
  const measured = new Map(times.measured ? times.rows.map((row) => [row.kernel, row.ms]) : []);
  const columns = [
    ["#", (_, i) => i, true], ["kernel", (k) => k.kernel], ["layers", (k) => (k.layers.length > 1 ? `${k.layers.length}: ` : "") + (k.layers.join(" + ") || "none: it moves data")],
    ["provider", (k) => k.provider], ["dtype", (k) => (k.tf32 ? "tf32" : k.dtype)], ["implementation", (k) => k.implementation || "in place"],
    ["layouts and tactic", (k) => k.form], ["tuned, µs", (k) => (k.tuned_nanoseconds ? (k.tuned_nanoseconds / 1e3).toFixed(1) : ""), true],
  ];
  if (times.measured) columns.push(["measured, µs", (k, i) => (measured.has(i) ? (measured.get(i) * 1e3).toFixed(1) : ""), true]);
  if (!report.kernels.length) { at("kernel-table").append(empty("There are no kernels.")); return; }
  const made = table(columns, report.kernels, (_, i) => choose(i));
  at("kernel-table").append(made.frame);
  at("kernel-filter").addEventListener("input", (event) => made.filter(event.target.value));
  at("only-fused").addEventListener("change", (event) => {
    made.lines.forEach((entry) => { entry.line.hidden = event.target.checked && entry.row.layers.length < 2; });
  });
}

function refusals() {
  const box = at("refusals");
  const groups = new Map();
  report.refusals.forEach((r) => {
    const key = JSON.stringify([r.provider, r.reason, r.hint]);
    groups.set(key, [...(groups.get(key) || []), r.layer]);
  });
  report.fallbacks.forEach((f) => {
    const [reason, ...rest] = f.reason.split("\n");
    groups.set(JSON.stringify([f.provider, reason, rest.join(" ").trim()]), null);
  });
  if (!groups.size) box.append(empty("None: every provider that was asked took every layer."));
  else {
    const rows = [...groups].map(([key, layers]) => ({ key: JSON.parse(key), layers }));
    box.append(table([["provider", (r) => r.key[0]], ["layers", (r) => (r.layers ? r.layers.join(", ") : "all")],
      ["reason", (r) => r.key[1]], ["what to do", (r) => r.key[2].replace(/^hint: /, "")]], rows).frame);
  }
  if (report.notes.length) {
    box.append(tag("h3", {}, "notes"));
    box.append(tag("ul", {}, ...report.notes.map((note) => tag("li", {}, note))));
  }
  const passes = report.passes.filter(([, count]) => count).sort((a, b) => b[1] - a[1]);
  at("passes").append(passes.length ? tag("p", {}, passes.map(([name, count]) => `${name.replace(/_/g, " ")} ${count}`).join(" · ")) : empty("No pass found anything to rewrite, or the engine came from a file."));
}

summary();
graphs();
searching();
at("precision").append(precisionShares(report, times));
at("times").append(timeline(report, times, choose));
at("memory").append(memoryMap(report));
kernels();
refusals();
document.querySelectorAll("[data-show]").forEach((b) => b.addEventListener("click", () => shown(b.dataset.show)));
at("theme").addEventListener("change", (event) => theme(event.target.value));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => Object.values(views).forEach((view) => view.paint()));
try { theme(localStorage.getItem("neurenix-theme") || ""); } catch { theme(""); }
if (/[?&#]theme=(dark|light)/.test(location.href)) theme(RegExp.$1);
document.documentElement.dataset.ready = "yes";
