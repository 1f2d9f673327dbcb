// Few crossings: each rank in the order of its neighbours' middles, from the top down and from the bottom up in turns.

import type { Layers } from "./ranked";

const ENOUGH = 3; // so many turns without a better order are the last ones
const MOST = 12;

/** Puts the best order that was met into `ranks`, and into the neighbours of each node. */
export function order(layers: Layers): void {
  const position = new Int32Array(layers.up.length);
  const put = (nodes: number[]) => nodes.forEach((v, i) => (position[v] = i));
  const { ranks, up, down } = layers;
  begin(layers);
  ranks.forEach(put);
  let best = ranks.map((nodes) => [...nodes]);
  let least = crossings(layers, position);
  for (let turn = 0, idle = 0; turn < MOST && idle < ENOUGH && least > 0; turn++, idle++) {
    const falling = turn % 2 === 0;
    for (let i = 1; i < ranks.length; i++) {
      const nodes = ranks[falling ? i : ranks.length - 1 - i];
      arrange(nodes, falling ? up : down, position);
      put(nodes);
    }
    const now = crossings(layers, position);
    if (now >= least) continue;
    [least, idle] = [now, -1];
    best = ranks.map((nodes) => [...nodes]);
  }
  best.forEach((nodes, r) => (ranks[r] = nodes));
  ranks.forEach(put);
  for (const neighbours of [...up, ...down]) neighbours.sort((a, b) => position[a] - position[b]);
}

/** The first order: as a search in depth meets the nodes, so that what hangs together stands together. */
function begin({ ranks, up, down }: Layers): void {
  const met = new Int32Array(up.length).fill(-1);
  let count = 0;
  for (const start of ranks.flat()) {
    const waiting = [start];
    while (waiting.length) {
      const v = waiting.pop()!;
      if (met[v] >= 0) continue;
      met[v] = count++;
      for (let i = down[v].length; i-- > 0;) if (met[down[v][i]] < 0) waiting.push(down[v][i]);
    }
  }
  for (const nodes of ranks) nodes.sort((a, b) => met[a] - met[b]);
}

/** In the order of their neighbours' mean position; nodes without neighbours stay where they are. */
function arrange(nodes: number[], neighbours: number[][], position: Int32Array): void {
  const mean = new Map<number, number>();
  for (const v of nodes) {
    let sum = 0;
    for (const u of neighbours[v]) sum += position[u];
    if (neighbours[v].length) mean.set(v, sum / neighbours[v].length);
  }
  const free = nodes.filter((v) => mean.has(v)).sort((a, b) => mean.get(a)! - mean.get(b)! || position[a] - position[b]);
  let next = 0;
  for (let i = 0; i < nodes.length; i++) if (mean.has(nodes[i])) nodes[i] = free[next++];
}

/** How many pairs of lines cross, counted with a tree of sums: O(lines x log of the longest rank). */
function crossings({ ranks, down }: Layers, position: Int32Array): number {
  let found = 0;
  for (let r = 0; r + 1 < ranks.length; r++) {
    const size = ranks[r + 1].length;
    const sums = new Int32Array(size + 1);
    let seen = 0;
    for (const v of ranks[r]) {
      const ends = down[v].map((w) => position[w]);
      for (const end of ends) {
        let before = 0;
        for (let i = end + 1; i > 0; i -= i & -i) before += sums[i];
        found += seen - before;
      }
      for (const end of ends) for (let i = end + 1; i <= size; i += i & -i) sums[i]++;
      seen += ends.length;
    }
  }
  return found;
}
