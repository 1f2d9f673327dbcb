// One box's inside in layers. What comes in from outside enters at the top, what goes out leaves at the bottom.

import { Graph, layout } from "@dagrejs/dagre";
import { ranked, type Edge } from "./ranked";

export interface Point { x: number; y: number }
export interface Size { width: number; height: number }
export interface Rect extends Point, Size {}

/** An edge between two keys: a box inside, or a port on the border. */
export interface Line { from: string; to: string; points: Point[] }

export interface Inside { width: number; height: number; boxes: Map<string, Rect>; lines: Map<string, Line> }

const GAP_X = 22;
const GAP_Y = 34;
const GAP_LINE = 12;
const FIRM = 100; // keeps ports at the border: their short way weighs more than the long one inside
const ROOM = 18; // between the ports and the boxes

const TOP = "top";
const BOTTOM = "bottom";

export const port = (way: "in" | "out", box: number) => `${way} ${box}`;

type Pairs = Map<string, [string, string]>;

/** Where the middles of boxes and ports are, and each line's bends. */
interface Found { middles: Map<string, Point>; bends: Map<string, Point[]> }

/** `inHaste`: by our own layout, which takes a twentieth of dagre's time. */
export function layered(sizes: Map<string, Size>, pairs: Pairs, ports: Set<string>, inHaste: boolean): Inside {
  return cropped(inHaste ? byRanks(sizes, pairs, ports) : byDagre(sizes, pairs, ports), sizes, pairs, ports);
}

function byRanks(sizes: Map<string, Size>, pairs: Pairs, ports: Set<string>): Found {
  const keys = [...sizes.keys(), ...ports];
  const number = new Map(keys.map((key, i) => [key, i]));
  const size = (key: string) => sizes.get(key) ?? { width: 1, height: 1 };
  const chosen = (way: string) => new Set([...ports].filter((key) => key.startsWith(way)).map((key) => number.get(key)!));
  const edges = [...pairs.values()].map(([from, to]): Edge => [number.get(from)!, number.get(to)!]);
  const problem = { widths: keys.map((key) => size(key).width), heights: keys.map((key) => size(key).height), edges, first: chosen("in "), last: chosen("out ") };
  const { middles, bends } = ranked(problem, { node: GAP_X, line: GAP_LINE, rank: GAP_Y });
  return { middles: new Map(keys.map((key, i) => [key, middles[i]])), bends: new Map([...pairs.keys()].map((key, i) => [key, bends[i]])) };
}

function byDagre(sizes: Map<string, Size>, pairs: Pairs, ports: Set<string>): Found {
  const graph: any = new Graph({ multigraph: false });
  graph.setGraph({ rankdir: "TB", nodesep: GAP_X, edgesep: GAP_LINE, ranksep: GAP_Y });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const [key, size] of sizes) graph.setNode(key, { ...size });
  for (const key of ports) graph.setNode(key, { width: 1, height: 1 });
  for (const [from, to] of pairs.values()) graph.setEdge(from, to, { weight: 1, minlen: 1 });
  if (ports.size) pinPorts(graph, sizes, ports);
  layout(graph);
  const middles = new Map([...sizes.keys(), ...ports].map((key) => [key, graph.node(key)]));
  return { middles, bends: new Map([...pairs].map(([key, [from, to]]) => [key, graph.edge(from, to).points.slice(1, -1)])) };
}

function pinPorts(graph: any, sizes: Map<string, Size>, ports: Set<string>): void {
  graph.setNode(TOP, { width: 0, height: 0 });
  graph.setNode(BOTTOM, { width: 0, height: 0 });
  for (const key of ports) {
    if (key.startsWith("in ")) graph.setEdge(TOP, key, { weight: FIRM, minlen: 1 });
    else graph.setEdge(key, BOTTOM, { weight: FIRM, minlen: 1 });
  }
  for (const key of sizes.keys()) {
    if (!graph.inEdges(key)?.length) graph.setEdge(TOP, key, { weight: 0, minlen: 1 });
    if (!graph.outEdges(key)?.length) graph.setEdge(key, BOTTOM, { weight: 0, minlen: 1 });
  }
}

/** The boxes and lines, moved so that the first begin at 0, 0; ports lie on the upper and lower edge. */
function cropped({ middles, bends }: Found, sizes: Map<string, Size>, pairs: Pairs, ports: Set<string>): Inside {
  const boxes = new Map<string, Rect>();
  let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
  for (const [key, { width, height }] of sizes) {
    const { x, y } = middles.get(key)!;
    boxes.set(key, { x: x - width / 2, y: y - height / 2, width, height });
    left = Math.min(left, x - width / 2);
    right = Math.max(right, x + width / 2);
    top = Math.min(top, y - height / 2);
    bottom = Math.max(bottom, y + height / 2);
  }
  const [first, last] = [top, bottom];
  if ([...ports].some((key) => key.startsWith("in "))) top -= ROOM;
  if ([...ports].some((key) => key.startsWith("out "))) bottom += ROOM;
  const lines = new Map<string, Line>();
  for (const [key, [from, to]] of pairs) {
    const points = bends.get(key)!;
    for (const point of points) {
      left = Math.min(left, point.x);
      right = Math.max(right, point.x);
    }
    lines.set(key, { from, to, points: points.filter(({ y }) => y > first && y < last) });
  }
  for (const rect of boxes.values()) {
    rect.x -= left;
    rect.y -= top;
  }
  for (const line of lines.values()) {
    const inner = line.points.map(({ x, y }) => ({ x: x - left, y: y - top }));
    const x = (key: string) => (ports.has(key) ? middles.get(key)!.x - left : boxes.get(key)!.x + boxes.get(key)!.width / 2);
    const start = ports.has(line.from) ? 0 : boxes.get(line.from)!.y + boxes.get(line.from)!.height;
    const end = ports.has(line.to) ? bottom - top : boxes.get(line.to)!.y;
    line.points = [{ x: x(line.from), y: start }, ...inner, { x: x(line.to), y: end }];
  }
  return { width: right - left, height: bottom - top, boxes, lines };
}
