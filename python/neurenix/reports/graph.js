/* Draws a graph on a canvas: pan, zoom, search, choose. */

const KINDS = [
  ["product", /^(Conv|ConvTranspose|MatMul|Gemm|Einsum|ConvInteger|MatMulInteger|DeformConv)/],
  ["attention, recurrent", /^(Attention|LinearAttention|LSTM|GRU|RNN|MultiHead)/],
  ["normalisation", /Norm|Softmax|Lrn|LRN/],
  ["pooling, reduction", /Pool|^Reduce|^Arg|TopK|^Cum/],
  ["shape and data", /^(Reshape|Transpose|Concat|Split|Slice|Gather|Scatter|Pad|Expand|Tile|Squeeze|Unsqueeze|Flatten|Cast|Shape|Identity|Resize|DepthToSpace|SpaceToDepth|Where|Reorder|reorder)/],
  ["input, output", /^(input|output)$/],
  ["element by element", /./],
];

function kindOf(op) {
  return KINDS.findIndex(([, pattern]) => pattern.test(op));
}

/* What the page draws of a report's graph: nodes for layers, inputs and outputs; edges for tensors. */
function drawable(graphs) {
  const nodes = [], edges = [];
  graphs.forEach((graph, part) => {
    const givers = new Map();
    const add = (node) => { nodes.push({ ...node, part }); return nodes.length - 1; };
    const type = (name) => {
      const tensor = graph.tensors[name];
      return tensor ? `${tensor.dtype}[${tensor.shape.join(", ")}]` : "";
    };
    const where = graphs.length > 1 ? ` (part ${part + 1})` : "";
    graph.inputs.forEach((name) => {
      givers.set(name, add({ op: "input", name: name + where, type: type(name), sources: [name], attrs: {} }));
    });
    graph.layers.forEach((layer) => {
      const at = add({ ...layer, type: layer.outputs.map(type).join(", "), weights: [] });
      layer.outputs.forEach((name) => givers.set(name, at));
    });
    let at = nodes.length - graph.layers.length;
    graph.layers.forEach((layer) => {
      layer.inputs.forEach((name) => {
        if (name === null) return;
        if (givers.has(name)) edges.push([givers.get(name), at, type(name)]);
        else nodes[at].weights.push(`${name}: ${type(name)}`);
      });
      at += 1;
    });
    graph.outputs.forEach(([name, tensor]) => {
      const end = add({ op: "output", name: name + where, type: type(tensor), sources: [], attrs: {} });
      if (givers.has(tensor)) edges.push([givers.get(tensor), end, type(tensor)]);
    });
  });
  // A part need not read all that it is given.
  const used = new Set(edges.flatMap(([a, b]) => [a, b]));
  const kept = nodes.map((node, i) => graphs.length === 1 || used.has(i) || node.op !== "input");
  const number = [];
  let left = 0;
  kept.forEach((keep, i) => { number[i] = left; left += keep; });
  const result = { nodes: nodes.filter((_, i) => kept[i]), edges: edges.map(([a, b, t]) => [number[a], number[b], t]) };
  result.nodes.forEach((node) => {
    node.kind = kindOf(node.op);
    node.text = `${node.op} ${node.name} ${node.sources.join(" ")}`.toLowerCase();
  });
  return result;
}

/* Lays out the parts of a graph under each other. */
function layOutParts({ nodes, edges }) {
  const parts = Math.max(0, ...nodes.map((node) => node.part)) + 1;
  const points = [];
  let width = NODE.width, height = 0;
  for (let part = 0; part < parts; part++) {
    const own = [], place = new Map(), lines = [];
    nodes.forEach((node, i) => { if (node.part === part) { place.set(i, own.length); own.push(node); } });
    edges.forEach(([a], i) => { if (place.has(a)) lines.push(i); });
    const made = layOut(own, lines.map((i) => edges[i].slice(0, 2).map((end) => place.get(end))));
    const top = height ? height + 2 * NODE.gapY : 0;
    own.forEach((node) => { node.y += top; });
    lines.forEach((i, at) => { points[i] = made.points[at].map(([x, y]) => [x, y + top]); });
    width = Math.max(width, made.width);
    height = top + made.height;
  }
  return { points, width, height: Math.max(height, NODE.height) };
}

const MAP_WIDTH = 72;

class GraphView {
  constructor(box, graphs, onChoose) {
    this.box = box;
    this.canvas = box.querySelector("canvas");
    this.onChoose = onChoose;
    Object.assign(this, drawable(graphs));
    this.layout = layOutParts(this);
    this.view = { x: 0, y: 0, scale: 1 };
    this.found = new Set();
    this.chosen = null;
    this.near = new Set();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(box);
    this.resize();
    this.home();
  }

  listen() {
    const canvas = this.canvas;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      drag = { x: event.offsetX, y: event.offsetY, moved: false, map: this.inMap(event) };
      if (drag.map) this.jump(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return;
      if (drag.map) { this.jump(event); return; }
      const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
      if (drag.moved || Math.abs(dx) + Math.abs(dy) > 3) {
        drag = { ...drag, x: event.offsetX, y: event.offsetY, moved: true };
        this.pan(dx, dy);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved && !drag.map) this.choose(this.nodeAt(event.offsetX, event.offsetY));
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => { drag = null; });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey || !event.shiftKey) {
        this.zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
      } else this.pan(-event.deltaX - event.deltaY, 0);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.box.querySelectorAll("[data-act]").forEach((button) => {
      button.addEventListener("click", () => this.act(button.dataset.act));
    });
  }

  act(name) {
    const middle = [this.width / 2, this.height / 2];
    ({ in: () => this.zoom(1.4, ...middle), out: () => this.zoom(1 / 1.4, ...middle), fit: () => this.fit(),
      home: () => this.home() })[name]();
  }

  key(event) {
    const step = 60;
    const keys = {
      ArrowLeft: () => this.pan(step, 0), ArrowRight: () => this.pan(-step, 0), ArrowUp: () => this.pan(0, step),
      ArrowDown: () => this.pan(0, -step), PageUp: () => this.pan(0, this.height * 0.8),
      PageDown: () => this.pan(0, -this.height * 0.8), "+": () => this.act("in"), "=": () => this.act("in"),
      "-": () => this.act("out"), 0: () => this.fit(), Home: () => this.home(), Escape: () => this.choose(null),
      "]": () => this.next(1), "[": () => this.next(-1),
    };
    if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      keys[event.key]();
    }
  }

  /* The layer after the chosen one, or before it. */
  next(step) {
    const at = this.chosen === null ? (step > 0 ? 0 : this.nodes.length - 1) : this.chosen + step;
    if (at >= 0 && at < this.nodes.length) { this.choose(at); this.show(at); }
  }

  resize() {
    const ratio = window.devicePixelRatio || 1, { clientWidth, clientHeight } = this.canvas;
    if (clientWidth === this.width && clientHeight === this.height && ratio === this.ratio) return;
    Object.assign(this, { width: clientWidth, height: clientHeight, ratio });
    this.canvas.width = clientWidth * ratio;
    this.canvas.height = clientHeight * ratio;
    // A canvas of a new size is empty: nobody should see that.
    this.draw();
  }

  pan(dx, dy) { this.view.x += dx; this.view.y += dy; this.keep(); this.paint(); }

  zoom(factor, x, y) {
    const scale = Math.min(3, Math.max(this.least(), this.view.scale * factor));
    const real = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * real, y: y - (y - this.view.y) * real };
    this.keep();
    this.paint();
  }

  least() {
    return Math.min(1, (this.width - 40) / this.layout.width, (this.height - 40) / this.layout.height) * 0.8;
  }

  /* Some of the graph stays in sight. */
  keep() {
    const { scale } = this.view, edge = 80;
    this.view.x = Math.min(this.width - edge, Math.max(edge - this.layout.width * scale, this.view.x));
    this.view.y = Math.min(this.height - edge, Math.max(edge - this.layout.height * scale, this.view.y));
  }

  fit() {
    const scale = Math.min(1.2, this.least() / 0.8);
    this.view = { scale, x: (this.width - this.layout.width * scale) / 2,
      y: (this.height - this.layout.height * scale) / 2 };
    this.paint();
  }

  /* All of it where that can be read; else its beginning. */
  home() {
    this.fit();
    if (this.view.scale < 0.55 && this.nodes.length) {
      const first = this.nodes.reduce((top, node) => (node.y < top.y ? node : top));
      const scale = 0.85;
      this.view = { scale, x: (this.width - MAP_WIDTH - 20) / 2 - first.x * scale, y: 24 };
    }
    this.paint();
  }

  /* Brings a node into the middle. */
  show(at) {
    const node = this.nodes[at], scale = Math.max(this.view.scale, 0.8);
    this.view = { scale, x: (this.width - MAP_WIDTH) / 2 - node.x * scale, y: this.height / 2 - node.y * scale };
    this.paint();
  }

  nodeAt(px, py) {
    const x = (px - this.view.x) / this.view.scale, y = (py - this.view.y) / this.view.scale;
    const hit = this.nodes.findIndex((n) => Math.abs(n.x - x) <= NODE.width / 2 && Math.abs(n.y - y) <= NODE.height / 2);
    return hit < 0 ? null : hit;
  }

  choose(at, quiet) {
    this.chosen = at;
    this.near = new Set();
    if (at !== null) this.edges.forEach(([a, b]) => { if (a === at) this.near.add(b); if (b === at) this.near.add(a); });
    if (!quiet) this.onChoose(at === null ? null : this.nodes[at]);
    this.paint();
  }

  search(words) {
    const text = words.trim().toLowerCase();
    this.found = new Set();
    if (text) this.nodes.forEach((node, i) => { if (node.text.includes(text)) this.found.add(i); });
    this.paint();
    return [...this.found];
  }

  /* Marks the layers that stand for the same nodes of the source model. */
  mark(sources) {
    this.found = new Set();
    this.nodes.forEach((node, i) => { if (node.sources.some((name) => sources.includes(name))) this.found.add(i); });
    this.paint();
    return [...this.found];
  }

  paint() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const { x, y, scale } = this.view;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.setTransform(this.ratio * scale, 0, 0, this.ratio * scale, this.ratio * x, this.ratio * y);
    const top = -y / scale - NODE.height, bottom = (this.height - y) / scale + NODE.height;
    const left = -x / scale - NODE.width, right = (this.width - x) / scale + NODE.width;
    this.drawEdges(pen, colour, top, bottom, scale);
    const kinds = KINDS.map((_, kind) => colour(`--kind-${kind}`));
    const look = { line: colour("--line-strong"), text: colour("--node-text"), soft: colour("--node-soft"),
      mark: colour("--mark"), accent: colour("--accent") };
    this.nodes.forEach((node, i) => {
      if (node.y < top || node.y > bottom || node.x < left || node.x > right) return;
      this.drawNode(pen, node, i, scale, kinds, look);
    });
    this.drawMap(pen, colour, kinds);
  }

  drawEdges(pen, colour, top, bottom, scale) {
    const plain = colour("--edge"), strong = colour("--accent"), inside = colour("--inside");
    this.edges.forEach(([a, b], i) => {
      const points = this.layout.points[i];
      if (points[0][1] > bottom || points[points.length - 1][1] < top) return;
      const from = this.nodes[a], to = this.nodes[b];
      const fused = from.kernel !== null && from.kernel !== undefined && from.kernel === to.kernel;
      const chosen = this.chosen === a || this.chosen === b;
      pen.strokeStyle = chosen ? strong : fused ? inside : plain;
      // Never thinner than what can be seen.
      pen.lineWidth = Math.max(chosen ? 2.5 : fused ? 5 : 1.5, 0.5 / scale);
      pen.beginPath();
      pen.moveTo(points[0][0], points[0][1]);
      for (let p = 1; p < points.length; p++) {
        const [ax, ay] = points[p - 1], [bx, by] = points[p], middle = (ay + by) / 2;
        if (ax === bx) pen.lineTo(bx, by);
        else pen.bezierCurveTo(ax, middle, bx, middle, bx, by);
      }
      pen.stroke();
    });
  }

  drawNode(pen, node, i, scale, kinds, look) {
    const w = NODE.width, h = NODE.height, left = node.x - w / 2, top = node.y - h / 2;
    const round = node.kind === 5 ? h / 2 : 6;
    pen.globalAlpha = this.found.size && !this.found.has(i) && this.chosen !== i ? 0.3 : 1;
    pen.fillStyle = kinds[node.kind];
    if (scale < 0.25) pen.fillRect(left, top, w, h);
    else { pen.beginPath(); pen.roundRect(left, top, w, h, round); pen.fill(); }
    if (this.found.has(i) || this.chosen === i) {
      pen.strokeStyle = this.chosen === i ? look.accent : look.mark;
      pen.lineWidth = 3 / Math.min(scale, 1);
      pen.beginPath(); pen.roundRect(left, top, w, h, round); pen.stroke();
    }
    if (scale >= 0.35) {
      pen.fillStyle = look.text;
      pen.textAlign = "center"; pen.textBaseline = "middle";
      pen.font = "600 13px system-ui, sans-serif";
      const number = node.kernel === null || node.kernel === undefined ? "" : ` #${node.kernel}`;
      pen.fillText(shorten(node.op + number, 24), node.x, scale >= 0.5 ? node.y - 9 : node.y);
      if (scale >= 0.5) {
        pen.fillStyle = look.soft;
        pen.font = "11px system-ui, sans-serif";
        pen.fillText(shorten(node.name, 27), node.x, node.y + 10);
      }
    }
    pen.globalAlpha = 1;
  }

  /* The whole graph, small, where it does not fit. */
  map() {
    const { width, height } = this.layout, { scale } = this.view;
    if (width * scale <= this.width && height * scale <= this.height) return null;
    const wide = MAP_WIDTH, tall = Math.min(this.height - 20, Math.max(120, this.height - 20));
    const small = Math.min(wide / width, tall / height);
    const stretch = { x: Math.max(small, Math.min(wide / width, small * 12)), y: small };
    return { left: this.width - wide - 10, top: 10, wide, tall: Math.min(tall, height * small), sx: stretch.x, sy: stretch.y };
  }

  inMap(event) {
    const map = this.map();
    return map !== null && event.offsetX >= map.left && event.offsetY >= map.top && event.offsetY <= map.top + map.tall;
  }

  jump(event) {
    const map = this.map();
    if (!map) return;
    const x = (event.offsetX - map.left) / map.sx, y = (event.offsetY - map.top) / map.sy;
    this.view.x = this.width / 2 - x * this.view.scale;
    this.view.y = this.height / 2 - y * this.view.scale;
    this.keep();
    this.paint();
  }

  drawMap(pen, colour, kinds) {
    const map = this.map();
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    if (!map) return;
    pen.fillStyle = colour("--card");
    pen.globalAlpha = 0.92;
    pen.fillRect(map.left - 4, map.top - 4, map.wide + 8, map.tall + 8);
    pen.globalAlpha = 1;
    const mark = colour("--mark");
    this.nodes.forEach((node, i) => {
      pen.fillStyle = this.found.has(i) ? mark : kinds[node.kind];
      const wide = Math.max(2, NODE.width * map.sx), tall = Math.max(1, NODE.height * map.sy);
      pen.fillRect(map.left + node.x * map.sx - wide / 2, map.top + node.y * map.sy - tall / 2, wide, tall);
    });
    const { x, y, scale } = this.view;
    const bound = (low, value, high) => Math.min(high, Math.max(low, value));
    const l = bound(0, (-x / scale) * map.sx, map.wide), r = bound(0, ((this.width - x) / scale) * map.sx, map.wide);
    const t = bound(0, (-y / scale) * map.sy, map.tall), b = bound(0, ((this.height - y) / scale) * map.sy, map.tall);
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 1.5;
    pen.strokeRect(map.left + l, map.top + t, Math.max(4, r - l), Math.max(4, b - t));
  }
}

function shorten(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor(most * 0.6);
  return `${text.slice(0, most - tail - 1)}…${text.slice(-tail)}`;
}
