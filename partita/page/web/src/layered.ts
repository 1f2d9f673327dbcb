// One box's inside in layers, by dagre. What comes in from outside enters at the top, what goes out leaves at the bottom.

import { Graph, layout } from "@dagrejs/dagre";

export interface Point { x: number; y: number }
export interface Size { width: number; height: number }
export interface Rect extends Point, Size {}

/** An edge between two keys: a box inside, or a port on the border. */
export interface Line { from: string; to: string; points: Point[] }

export interface Inside { width: number; height: number; boxes: Map<string, Rect>; lines: Map<string, Line> }

export const GAP_X = 22;
export const GAP_Y = 34;
const FIRM = 100; // keeps ports at the border: their short way weighs more than the long one inside
const ROOM = 18; // between the ports and the boxes
const MANY = 60; // beyond, a quicker way of choosing layers

const TOP = "top";
const BOTTOM = "bottom";

export const port = (way: "in" | "out", box: number) => `${way} ${box}`;

export function layered(sizes: Map<string, Size>, pairs: Map<string, [string, string]>, ports: Set<string>): Inside {
  const graph = new Graph({ multigraph: false });
  graph.setGraph({ rankdir: "TB", nodesep: GAP_X, edgesep: 12, ranksep: GAP_Y, ranker: sizes.size > MANY ? "tight-tree" : "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const [key, size] of sizes) graph.setNode(key, { ...size });
  for (const key of ports) graph.setNode(key, { width: 1, height: 1 });
  for (const [from, to] of pairs.values()) graph.setEdge(from, to, { weight: 1, minlen: 1 });
  if (ports.size) pinPorts(graph, sizes, ports);
  layout(graph);
  return cropped(graph, sizes, pairs, ports);
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
function cropped(graph: any, sizes: Map<string, Size>, pairs: Map<string, [string, string]>, ports: Set<string>): Inside {
  const boxes = new Map<string, Rect>();
  let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
  for (const [key, { width, height }] of sizes) {
    const { x, y } = graph.node(key);
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
    const points: Point[] = graph.edge(from, to).points;
    for (const point of points) {
      left = Math.min(left, point.x);
      right = Math.max(right, point.x);
    }
    lines.set(key, { from, to, points: points.slice(1, -1).filter(({ y }) => y > first && y < last) });
  }
  for (const rect of boxes.values()) {
    rect.x -= left;
    rect.y -= top;
  }
  for (const line of lines.values()) {
    const inner = line.points.map(({ x, y }) => ({ x: x - left, y: y - top }));
    const x = (key: string) => (ports.has(key) ? graph.node(key).x - left : boxes.get(key)!.x + boxes.get(key)!.width / 2);
    const start = ports.has(line.from) ? 0 : boxes.get(line.from)!.y + boxes.get(line.from)!.height;
    const end = ports.has(line.to) ? bottom - top : boxes.get(line.to)!.y;
    line.points = [{ x: x(line.from), y: start }, ...inner, { x: x(line.to), y: end }];
  }
  return { width: right - left, height: bottom - top, boxes, lines };
}
