// Places within the ranks, after Brandes and Köpf, "Fast and simple horizontal coordinate assignment" (2001): nodes that should
// stand above each other form blocks, in four ways; the blocks are pushed together; the middle of the four is taken.

import type { Layers } from "./ranked";

/** The middle of each node. `room`: how wide a node is with its share of the gaps. The neighbours are in the order of the ranks. */
export function positions(layers: Layers, room: (v: number) => number): number[] {
  const count = layers.up.length;
  const rooms = Array.from({ length: count }, (_, v) => room(v));
  const barred = conflicts(layers);
  const tried: Float64Array[] = [];
  for (const falling of [true, false]) {
    for (const mirrored of [false, true]) {
      let ranks = falling ? layers.ranks : [...layers.ranks].reverse();
      if (mirrored) ranks = ranks.map((nodes) => [...nodes].reverse());
      const position = new Int32Array(count);
      for (const nodes of ranks) nodes.forEach((v, i) => (position[v] = i));
      const block = blocks(ranks, falling ? layers.up : layers.down, position, mirrored, barred);
      const x = pushed(ranks, block, rooms);
      tried.push(mirrored ? x.map((value) => -value) : x);
    }
  }
  return middle(tried, rooms);
}

const pair = (a: number, b: number) => (a < b ? a * 2 ** 26 + b : b * 2 ** 26 + a);

/** Lines that cross the straight middle part of a long line: they give way. */
function conflicts({ ranks, up, nodes }: Layers): Set<number> {
  const found = new Set<number>();
  const position = new Int32Array(up.length);
  for (const rank of ranks) rank.forEach((v, i) => (position[v] = i));
  const above = (v: number) => (v >= nodes && up[v][0] >= nodes ? up[v][0] : -1); // the knot over a knot
  for (let r = 1; r < ranks.length; r++) {
    let left = 0;
    let done = 0;
    ranks[r].forEach((v, i) => {
      const knot = above(v);
      if (knot < 0 && i + 1 < ranks[r].length) return;
      const right = knot < 0 ? ranks[r - 1].length : position[knot];
      for (; done <= i; done++) {
        const w = ranks[r][done];
        for (const u of up[w]) if ((position[u] < left || position[u] > right) && above(w) !== u) found.add(pair(u, w));
      }
      left = right;
    });
  }
  return found;
}

/** For each node the first of its block: a node is put under the middle one of its neighbours that is still free. */
function blocks(ranks: number[][], neighbours: number[][], position: Int32Array, mirrored: boolean, barred: Set<number>): Int32Array {
  const root = Int32Array.from({ length: position.length }, (_, v) => v);
  const taken = new Uint8Array(position.length);
  for (const nodes of ranks) {
    let last = -1;
    for (const v of nodes) {
      const near = neighbours[v];
      if (!near.length) continue;
      const middles = [(near.length - 1) >> 1, near.length >> 1];
      for (const i of mirrored ? middles.reverse() : middles) {
        const u = near[i];
        if (root[v] !== v || taken[u] || position[u] <= last || barred.has(pair(u, v))) continue;
        taken[u] = 1;
        root[v] = root[u];
        last = position[u];
      }
    }
  }
  return root;
}

/** Blocks as far to the left as their left neighbours allow, then those that stand apart to the right, as far as theirs do. */
function pushed(ranks: number[][], root: Int32Array, rooms: number[]): Float64Array {
  const after: [number, number][][] = Array.from(root, () => []);
  const before: [number, number][][] = Array.from(root, () => []);
  const waits = new Int32Array(root.length);
  for (const nodes of ranks) {
    for (let i = 1; i < nodes.length; i++) {
      const [a, b] = [root[nodes[i - 1]], root[nodes[i]]];
      const apart = (rooms[nodes[i - 1]] + rooms[nodes[i]]) / 2;
      after[a].push([b, apart]);
      before[b].push([a, apart]);
      waits[b]++;
    }
  }
  const sorted = Array.from(root.keys()).filter((v) => root[v] === v && !waits[v]);
  for (const a of sorted) for (const [b] of after[a]) if (!--waits[b]) sorted.push(b);
  const x = new Float64Array(root.length);
  for (const b of sorted) for (const [a, apart] of before[b]) x[b] = Math.max(x[b], x[a] + apart);
  for (const a of sorted.reverse()) {
    const room = after[a].reduce((least, [b, apart]) => Math.min(least, x[b] - apart), Infinity);
    if (room < Infinity) x[a] = Math.max(x[a], room);
  }
  return x.map((_, v) => x[root[v]]);
}

/** The mean of the two middle ones of the four, each moved to an edge of the narrowest. */
function middle(tried: Float64Array[], rooms: number[]): number[] {
  const spans = tried.map((x) => {
    let [low, high] = [Infinity, -Infinity];
    x.forEach((value, v) => {
      low = Math.min(low, value - rooms[v] / 2);
      high = Math.max(high, value + rooms[v] / 2);
    });
    return [low, high];
  });
  const best = spans.reduce((a, b) => (b[1] - b[0] < a[1] - a[0] ? b : a));
  const shifts = spans.map(([low, high], i) => (i % 2 ? best[1] - high : best[0] - low));
  return rooms.map((_, v) => {
    const four = tried.map((x, i) => x[v] + shifts[i]).sort((a, b) => a - b);
    return (four[1] + four[2]) / 2;
  });
}
