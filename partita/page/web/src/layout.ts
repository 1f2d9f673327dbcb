// Where everything is: each open box laid out by itself, the innermost first, then put together.

import { inColumns } from "./columns";
import { layered, port, type Inside, type Point, type Rect, type Size } from "./layered";
import { seenEdges, Tree } from "./tree";

/** `heads`: how wide a box is at least when it is open. */
export interface Job { parents: Int32Array; pairs: Int32Array; widths: Float32Array; heights: Float32Array; heads: Float32Array }
export interface Placed extends Rect { box: number; open: boolean; depth: number }
export interface Drawn { from: number; to: number; edges: number[]; points: Point[] }
export interface Picture { width: number; height: number; boxes: Placed[]; lines: Drawn[] }

const HEAD = 30;
const PAD = 16;
const LANE = 8; // between the lines that come in beside a title
const LANES = 5; // for so many of them there is room; more share the last
const ROOT = -1;
const MANY = 400; // boxes; with more, dagre would take seconds to lay all of them out

interface Local { pairs: Map<string, [string, string]>; ports: Set<string> }

/** What a layout rests on, the same for boxes with the same things inside; and each key's number in it. */
function structure(sizes: Map<string, Size>, { pairs, ports }: Local, aspect: number): { key: string; number: Map<string, number> } {
  const number = new Map([...sizes.keys(), ...ports].map((key, i) => [key, i]));
  const ways = [...ports].map((key) => key.split(" ")[0]).join();
  const ends = [...pairs.values()].map(([from, to]) => `${number.get(from)}>${number.get(to)}`).join();
  return { key: `${aspect};${[...sizes.values()].map(({ width, height }) => `${width}x${height}`).join()};${ways};${ends}`, number };
}

/** A layout, for whatever has the same structure: networks repeat their blocks. */
class Kept {
  private readonly names: string[];

  constructor(private readonly inside: Inside, number: Map<string, number>) {
    this.names = [...number.keys()];
  }

  numbered(number: Map<string, number>): Inside {
    const renamed = new Map([...number.keys()].map((key, i) => [this.names[i], key]));
    const { width, height, boxes, lines } = this.inside;
    const made: Inside = { width, height, boxes: new Map(), lines: new Map() };
    for (const [key, rect] of boxes) made.boxes.set(renamed.get(key)!, rect);
    for (const { from, to, points } of lines.values()) {
      const [a, b] = [renamed.get(from)!, renamed.get(to)!];
      made.lines.set(`${a}>${b}`, { from: a, to: b, points });
    }
    return made;
  }
}

/** Lays out one scene again and again, and remembers what did not change. */
export class Layouter {
  private readonly tree: Tree;
  private readonly kept = new Map<string, Kept>();

  constructor(private readonly job: Job) {
    this.tree = new Tree(job.parents);
  }

  picture(opened: number[], aspect: number): Picture {
    const open = new Set(opened.filter((box) => this.tree.holds(box)));
    const edges = seenEdges(this.tree, this.job.pairs, open);
    const ways = new Map<string, { home: number; key: string }[]>();
    const locals = this.localEdges(edges, ways);
    const insides = new Map<number, Inside>();
    for (const box of this.innermostFirst(open)) insides.set(box, this.inside(box, locals, insides, open, aspect));
    return this.composed(edges, ways, insides, open);
  }

  /** What every open box has to lay out, and for each edge the pieces that it consists of, from producer to consumer. */
  private localEdges(edges: ReturnType<typeof seenEdges>, ways: Map<string, { home: number; key: string }[]>): Map<number, Local> {
    const locals = new Map<number, Local>();
    const { tree } = this;
    const add = (home: number, from: string, to: string) => {
      let local = locals.get(home);
      if (!local) locals.set(home, (local = { pairs: new Map(), ports: new Set() }));
      for (const end of [from, to]) if (end.includes(" ")) local.ports.add(end);
      local.pairs.set(`${from}>${to}`, [from, to]);
      return { home, key: `${from}>${to}` };
    };
    for (const [name, { from, to }] of edges) {
      const home = tree.meet(from, to);
      const way = [];
      let at = from;
      while (tree.parents[at] !== home) {
        way.push(add(tree.parents[at], String(at), port("out", from)));
        at = tree.parents[at];
      }
      const start = at;
      const down = [];
      at = to;
      while (tree.parents[at] !== home) {
        down.push(add(tree.parents[at], port("in", from), String(at)));
        at = tree.parents[at];
      }
      way.push(add(home, String(start), String(at)), ...down.reverse());
      ways.set(name, way);
    }
    return locals;
  }

  private innermostFirst(open: Set<number>): number[] {
    const reached = [ROOT];
    for (const box of reached) for (const child of this.tree.inside(box)) if (open.has(child)) reached.push(child);
    return reached.reverse();
  }

  private inside(box: number, locals: Map<number, Local>, insides: Map<number, Inside>, open: Set<number>, aspect: number): Inside {
    const local = locals.get(box) ?? { pairs: new Map(), ports: new Set<string>() };
    const sizes = new Map<string, Size>();
    for (const child of this.tree.inside(box)) sizes.set(String(child), this.size(child, insides, open, locals.get(child)?.ports ?? new Set()));
    const { key, number } = structure(sizes, local, aspect);
    const known = this.kept.get(key);
    if (known) return known.numbered(number);
    const inside = inColumns(layered(sizes, local.pairs, local.ports, this.job.parents.length > MANY), aspect);
    this.kept.set(key, new Kept(inside, number));
    return inside;
  }

  private size(box: number, insides: Map<number, Inside>, open: Set<number>, ports: Set<string>): Size {
    if (!open.has(box)) return { width: this.job.widths[box], height: this.job.heights[box] };
    const inside = insides.get(box)!;
    const lanes = Math.min(LANES, [...ports].filter((key) => key.startsWith("in ")).length);
    return { width: Math.max(inside.width + 2 * PAD, this.job.heads[box] + (lanes + 1) * LANE), height: inside.height + HEAD + 2 * PAD };
  }

  /** For each port that lies below the title of its box: where a line goes in beside the title, and no line crosses another. */
  private besides(boxes: Placed[], insides: Map<number, Inside>, origins: Map<number, Point>): Lanes {
    const lanes: Lanes = new Map();
    for (const { box, x, width, open } of boxes) {
      if (!open) continue;
      const end = x + this.job.heads[box] - LANE;
      const entering = new Map<string, number>();
      for (const { from, points } of insides.get(box)!.lines.values()) if (from.startsWith("in ")) entering.set(from, points[0].x + origins.get(box)!.x);
      const below = [...entering].filter(([, at]) => at < end + LANE / 2).sort(([, a], [, b]) => a - b);
      below.forEach(([port], i) => lanes.set(`${box} ${port}`, Math.min(end + (Math.min(i, LANES - 1) + 1) * LANE, x + width - LANE)));
    }
    return lanes;
  }

  private composed(edges: ReturnType<typeof seenEdges>, ways: Map<string, { home: number; key: string }[]>,
                   insides: Map<number, Inside>, open: Set<number>): Picture {
    const boxes: Placed[] = [];
    const origins = new Map<number, Point>([[ROOT, { x: 0, y: 0 }]]);
    const reached = [ROOT];
    for (const home of reached) {
      const { x, y } = origins.get(home)!;
      const inside = insides.get(home)!;
      for (const child of this.tree.inside(home)) {
        const rect = inside.boxes.get(String(child))!;
        const isOpen = open.has(child);
        boxes.push({ box: child, x: x + rect.x, y: y + rect.y, width: rect.width, height: rect.height, open: isOpen, depth: this.tree.depth[child] });
        if (isOpen) {
          const slack = (rect.width - insides.get(child)!.width) / 2;
          origins.set(child, { x: x + rect.x + slack, y: y + rect.y + HEAD + PAD });
          reached.push(child);
        }
      }
    }
    const besides = this.besides(boxes, insides, origins);
    const lines: Drawn[] = [];
    for (const [name, { from, to, edges: numbers }] of edges) {
      const pieces = ways.get(name)!.map(({ home, key }) => {
        const { x, y } = origins.get(home)!;
        const points = insides.get(home)!.lines.get(key)!.points.map((p) => ({ x: p.x + x, y: p.y + y }));
        const lane = besides.get(`${home} ${key.split(">")[0]}`);
        return lane === undefined ? points : [{ x: lane, y: y - PAD }, ...points.slice(1)];
      });
      lines.push({ from, to, edges: numbers, points: joined(pieces, ways.get(name)!.map(({ key }) => key.includes(">out "))) });
    }
    const { width, height } = insides.get(ROOT)!;
    return { width, height, boxes, lines };
  }
}

/** Where on its border a box's lines come in; see `besides`. */
type Lanes = Map<string, number>;

/** The pieces of one line, end to end: where it crosses the border of a box, it does so at the port. */
function joined(pieces: Point[][], leaves: boolean[]): Point[] {
  const found: Point[] = [...pieces[0]];
  pieces.slice(1).forEach((piece, i) => {
    const last = found[found.length - 1];
    if (leaves[i]) found.push({ x: last.x, y: piece[0].y }, ...piece.slice(1));
    else {
      last.x = piece[0].x;
      found.push(...piece);
    }
  });
  return found;
}
