"use strict";
/* A layered layout of a graph: ranks from top to bottom, edges pointing down, few crossings, straight long edges. */

const NODE = { width: 190, height: 46, gapX: 26, gapY: 36, thin: 14 };
/* With more points on long edges than this, these are drawn straight. */
const MOST_BENDS = 30000;
const SWEEPS = 10;
const RELAXATIONS = 80;

/* nodes: [{id, ...}]; edges: [[from, to, ...]] by position in nodes. Sets x, y (centres) of each node, gives for each
   edge its points, and the size of it all. */
function layOut(nodes, edges) {
  const count = nodes.length;
  const below = nodes.map(() => []), above = nodes.map(() => []);
  edges.forEach(([a, b]) => { below[a].push(b); above[b].push(a); });
  const rank = ranks(count, below, above);
  const cells = nodes.map((_, i) => ({ rank: rank[i], width: NODE.width, up: [], down: [] }));
  const bends = edges.reduce((sum, [a, b]) => sum + Math.max(0, rank[b] - rank[a] - 1), 0);
  const chains = edges.map(([a, b]) => {
    const chain = [a];
    for (let r = rank[a] + 1; bends <= MOST_BENDS && r < rank[b]; r++) {
      cells.push({ rank: r, width: NODE.thin, up: [], down: [] });
      chain.push(cells.length - 1);
    }
    chain.push(b);
    for (let i = 1; i < chain.length; i++) {
      cells[chain[i - 1]].down.push(chain[i]);
      cells[chain[i]].up.push(chain[i - 1]);
    }
    return chain;
  });
  const rows = order(cells);
  straighten(cells, rows);
  const step = NODE.height + NODE.gapY;
  cells.forEach((cell) => { cell.y = cell.rank * step + NODE.height / 2; });
  nodes.forEach((node, i) => { node.x = cells[i].x; node.y = cells[i].y; });
  // A long edge goes straight down beside the layers of a row, and bends between two rows.
  const half = NODE.height / 2;
  const points = chains.map((chain) => chain.flatMap((i, at) => {
    const above = [cells[i].x, cells[i].y - half], under = [cells[i].x, cells[i].y + half];
    return at === 0 ? [under] : at === chain.length - 1 ? [above] : [above, under];
  }));
  const ends = (side, most) => rows.length ? most(...rows.map((row) => most(...row.map((i) => cells[i].x + side * cells[i].width / 2)))) : 0;
  const shift = -ends(-1, Math.min);
  nodes.forEach((node) => { node.x += shift; });
  points.forEach((line) => line.forEach((point) => { point[0] += shift; }));
  return { points, width: Math.max(NODE.width, ends(1, Math.max) + shift), height: Math.max(1, rows.length) * step - NODE.gapY };
}

/* The longest way from a source; sources themselves stand right above the first that reads them. */
function ranks(count, below, above) {
  const rank = new Array(count).fill(0), waiting = above.map((list) => list.length);
  const ready = [];
  waiting.forEach((n, i) => { if (n === 0) ready.push(i); });
  const seen = [];
  for (let at = 0; at < ready.length; at++) {
    const i = ready[at];
    seen.push(i);
    below[i].forEach((j) => {
      rank[j] = Math.max(rank[j], rank[i] + 1);
      if (--waiting[j] === 0) ready.push(j);
    });
  }
  seen.forEach((i) => {
    if (above[i].length === 0 && below[i].length > 0) rank[i] = Math.min(...below[i].map((j) => rank[j])) - 1;
  });
  return rank;
}

/* Rows of cells, ordered so that few edges cross: each goes where the middle of its neighbours is. */
function order(cells) {
  const rows = [];
  cells.forEach((cell, i) => { (rows[cell.rank] = rows[cell.rank] || []).push(i); });
  for (let r = 0; r < rows.length; r++) rows[r] = rows[r] || [];
  const place = () => rows.forEach((row) => row.forEach((i, at) => { cells[i].at = (at + 0.5) / row.length; }));
  place();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    const list = down ? rows : rows.slice().reverse();
    list.forEach((row) => {
      row.forEach((i) => {
        const near = down ? cells[i].up : cells[i].down;
        cells[i].key = near.length ? near.reduce((sum, j) => sum + cells[j].at, 0) / near.length : cells[i].at;
      });
      row.sort((a, b) => cells[a].key - cells[b].key || cells[a].at - cells[b].at);
      row.forEach((i, at) => { cells[i].at = (at + 0.5) / row.length; });
    });
  }
  return rows.filter((row) => row.length);
}

/* Puts each cell as near to its neighbours as the others in its row allow. Rows begin centred and all neighbours pull,
   so that long graphs do not drift to a side. Long edges, and layers in a row without branches, move as one: straight. */
function straighten(cells, rows) {
  rows.forEach((row) => {
    let x = 0;
    row.forEach((i) => { cells[i].x = x + cells[i].width / 2; x += cells[i].width + NODE.gapX; });
    row.forEach((i) => { cells[i].x -= (x - NODE.gapX) / 2; });
  });
  const line = lines(cells);
  const members = [];
  line.forEach((number, i) => { (members[number] = members[number] || []).push(i); });
  const mean = (list) => list.reduce((sum, i) => sum + cells[i].x, 0) / list.length;
  const outer = members.map((list) => list.flatMap((i) => cells[i].up.concat(cells[i].down).filter((j) => line[j] !== line[i])));
  for (let sweep = 0; sweep < RELAXATIONS; sweep++) {
    const want = members.map((list, number) => (outer[number].length ? (mean(list) + mean(outer[number])) / 2 : mean(list)));
    rows.forEach((row) => {
      spread(row, cells, row.map((i) => want[line[i]])).forEach((x, at) => { cells[row[at]].x = x; });
    });
  }
}

/* For each cell the number of its line: the points of a long edge, or layers of which each leads to the next alone. */
function lines(cells) {
  const bend = (i) => cells[i].width === NODE.thin;
  const line = new Array(cells.length).fill(-1);
  let count = 0;
  cells.map((_, i) => i).sort((a, b) => cells[a].rank - cells[b].rank).forEach((i) => {
    const [j] = cells[i].up;
    const joined = cells[i].up.length === 1 && cells[j].down.length === 1 && bend(i) === bend(j);
    line[i] = joined ? line[j] : count++;
  });
  return line;
}

/* The places nearest to those wanted, in the order of the row, with room between them (pooling adjacent violators). */
function spread(row, cells, want) {
  const offset = [];
  row.forEach((i, at) => {
    const before = at ? offset[at - 1] + (cells[row[at - 1]].width + cells[i].width) / 2 + NODE.gapX : 0;
    offset.push(before);
  });
  const pools = [];
  want.forEach((x, at) => {
    let pool = { sum: x - offset[at], weight: 1, count: 1 };
    while (pools.length && pools[pools.length - 1].sum / pools[pools.length - 1].weight > pool.sum / pool.weight) {
      const last = pools.pop();
      pool = { sum: last.sum + pool.sum, weight: last.weight + pool.weight, count: last.count + pool.count };
    }
    pools.push(pool);
  });
  const found = [];
  pools.forEach((pool) => {
    for (let i = 0; i < pool.count; i++) found.push(pool.sum / pool.weight + offset[found.length]);
  });
  return found;
}
