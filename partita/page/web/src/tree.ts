// Which boxes are seen, given which are open; and which edges join them.

export class Tree {
  readonly children: number[][];
  readonly roots: number[] = [];
  readonly depth: number[];

  constructor(readonly parents: ArrayLike<number>) {
    const n = parents.length;
    this.children = Array.from({ length: n }, () => []);
    this.depth = new Array(n).fill(-1);
    for (let i = 0; i < n; i++) (parents[i] < 0 ? this.roots : this.children[parents[i]]).push(i);
    const stack = [...this.roots];
    for (const root of this.roots) this.depth[root] = 0;
    while (stack.length) {
      const box = stack.pop()!;
      for (const child of this.children[box]) {
        this.depth[child] = this.depth[box] + 1;
        stack.push(child);
      }
    }
  }

  inside(box: number): number[] {
    return box < 0 ? this.roots : this.children[box];
  }

  holds(box: number): boolean {
    return this.children[box].length > 0;
  }

  /** The boxes around this one, the nearest first. */
  ancestors(box: number): number[] {
    const found: number[] = [];
    for (let at = this.parents[box]; at >= 0; at = this.parents[at]) found.push(at);
    return found;
  }

  /** The box itself, or the outermost closed one that hides it. */
  seen(box: number, open: Set<number>): number {
    let shown = box;
    for (let at = this.parents[box]; at >= 0; at = this.parents[at]) if (!open.has(at)) shown = at;
    return shown;
  }

  /** The nearest box around both; -1: none. */
  meet(a: number, b: number): number {
    while (a !== b) {
      if (a < 0 || b < 0) return -1;
      if (this.depth[a] >= this.depth[b]) a = this.parents[a];
      else b = this.parents[b];
    }
    return a;
  }

  /** The box itself or the one around it that lies directly in `home`. */
  under(box: number, home: number): number {
    while (this.parents[box] !== home) box = this.parents[box];
    return box;
  }
}

/** Edges between seen boxes by "from,to", each with the numbers of the edges that it stands for. */
export function seenEdges(tree: Tree, pairs: ArrayLike<number>, open: Set<number>): Map<string, { from: number; to: number; edges: number[] }> {
  const found = new Map<string, { from: number; to: number; edges: number[] }>();
  const shown = new Map<number, number>();
  const see = (box: number) => {
    let seen = shown.get(box);
    if (seen === undefined) shown.set(box, (seen = tree.seen(box, open)));
    return seen;
  };
  for (let i = 0; i < pairs.length; i += 2) {
    const from = see(pairs[i]);
    const to = see(pairs[i + 1]);
    if (from === to || tree.meet(from, to) === from || tree.meet(from, to) === to) continue;
    const key = `${from},${to}`;
    const known = found.get(key);
    if (known) known.edges.push(i / 2);
    else found.set(key, { from, to, edges: [i / 2] });
  }
  return found;
}
