// A layered layout in near-linear time, for graphs so large that dagre would take long. The stages are Sugiyama's:
// ranks, in each rank an order with few crossings, positions in which long lines run straight. All on numbers.

import { positions } from "./aligned";
import type { Point } from "./layered";
import { order } from "./ordered";

export type Edge = [from: number, to: number];

/** `first` and `last`: nodes that stand in ranks of their own, above and below all others. */
export interface Problem { widths: number[]; heights: number[]; edges: Edge[]; first: Set<number>; last: Set<number> }

/** Where the middles of the nodes are; and the bends of each edge, from its upper end to the lower one. */
export interface Solution { middles: Point[]; bends: Point[][] }

export interface Gaps { node: number; line: number; rank: number }

/** The nodes in their ranks, and among them the knots: one in each rank that a line passes through. `up`, `down`: neighbours. */
export interface Layers { nodes: number; ranks: number[][]; up: number[][]; down: number[][] }

export function ranked({ widths, heights, edges, first, last }: Problem, gaps: Gaps): Solution {
  const count = widths.length;
  const sorted = topological(count, edges);
  const turn = inverse(sorted);
  const forward = edges.map(([a, b]): Edge => (turn[a] < turn[b] ? [a, b] : [b, a]));
  const rank = ranks(sorted, forward, first, last);
  const { layers, knots } = knotted(rank, forward);
  order(layers);
  const x = positions(layers, (v) => (v < count ? widths[v] + gaps.node : gaps.line));
  const high = layers.ranks.map((nodes) => nodes.reduce((most, v) => (v < count ? Math.max(most, heights[v]) : most), 0));
  const tops = high.map(() => 0);
  for (let r = 1; r < high.length; r++) tops[r] = tops[r - 1] + high[r - 1] + gaps.rank;
  const middles = rank.map((r, v) => ({ x: x[v], y: tops[r] + high[r] / 2 }));
  const bends = knots.map((chain) => thinned(chain.flatMap(([v, r]) => [tops[r], tops[r] + high[r]].map((y) => ({ x: x[v], y })))));
  return { middles, bends: bends.map((points, i) => (forward[i][0] === edges[i][0] ? points : points.reverse())) };
}

/** The numbers below `count` in an order that the edges agree with; where they form a cycle, the lowest number goes first. */
function topological(count: number, edges: Edge[]): number[] {
  const waits = new Int32Array(count);
  const readers: number[][] = Array.from({ length: count }, () => []);
  for (const [from, to] of edges) {
    waits[to]++;
    readers[from].push(to);
  }
  const found: number[] = [];
  const taken = new Uint8Array(count);
  const take = (v: number) => {
    taken[v] = 1;
    found.push(v);
  };
  for (let v = 0; v < count; v++) if (!waits[v]) take(v);
  let lowest = 0;
  for (let i = 0; i < count; i++) {
    if (i === found.length) {
      while (taken[lowest]) lowest++;
      take(lowest);
    }
    for (const reader of readers[found[i]]) if (!--waits[reader] && !taken[reader]) take(reader);
  }
  return found;
}

function inverse(numbers: number[]): number[] {
  const found = new Array(numbers.length);
  numbers.forEach((v, i) => (found[v] = i));
  return found;
}

/** Each node below all that it reads from; those with more readers than inputs as low as their readers allow. */
function ranks(sorted: number[], edges: Edge[], first: Set<number>, last: Set<number>): number[] {
  const rank = new Array(sorted.length).fill(first.size ? 1 : 0);
  const [above, below] = [sorted.map((): number[] => []), sorted.map((): number[] => [])];
  for (const [from, to] of edges) {
    above[to].push(from);
    below[from].push(to);
  }
  for (const v of first) rank[v] = 0;
  for (const v of sorted) for (const u of above[v]) rank[v] = Math.max(rank[v], rank[u] + 1);
  const lowest = rank.reduce((most, r, v) => (last.has(v) ? most : Math.max(most, r)), 0) + 1;
  for (const v of last) rank[v] = lowest;
  for (const v of [...sorted].reverse()) {
    if (first.has(v) || below[v].length <= above[v].length) continue;
    rank[v] = below[v].reduce((least, w) => Math.min(least, rank[w] - 1), Infinity);
  }
  const used = [...new Set(rank)].sort((a, b) => a - b);
  const dense = new Map(used.map((r, i) => [r, i]));
  return rank.map((r) => dense.get(r)!);
}

/** A knot for each rank that an edge passes through, shared by the edges of one node; and each edge's knots with their ranks. */
function knotted(rank: number[], edges: Edge[]): { layers: Layers; knots: [number, number][][] } {
  const found: number[][] = Array.from({ length: Math.max(-1, ...rank) + 1 }, () => []);
  rank.forEach((r, v) => found[r].push(v));
  const layers: Layers = { nodes: rank.length, ranks: found, up: rank.map(() => []), down: rank.map(() => []) };
  const led = new Map<number, [number, number][]>();
  const link = (a: number, b: number) => {
    layers.down[a].push(b);
    layers.up[b].push(a);
  };
  const knots = edges.map(([from, to]) => {
    let chain = led.get(from);
    if (!chain) led.set(from, (chain = []));
    for (let r = rank[from] + chain.length + 1; r < rank[to]; r++) {
      const knot = layers.up.push([]) - 1;
      layers.down.push([]);
      found[r].push(knot);
      link(chain.length ? chain[chain.length - 1][0] : from, knot);
      chain.push([knot, r]);
    }
    const used = chain.slice(0, rank[to] - rank[from] - 1);
    link(used.length ? used[used.length - 1][0] : from, to);
    return used;
  });
  return { layers, knots };
}

/** Without the points in the middle of a straight line. */
function thinned(points: Point[]): Point[] {
  const apart = (i: number, j: number) => Math.abs(points[i].x - points[j].x) > 0.5;
  return points.filter((_, i) => i === 0 || i === points.length - 1 || apart(i, i - 1) || apart(i, i + 1));
}
