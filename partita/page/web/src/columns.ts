// A tall picture set in columns, as a text is: cut where few lines run, the lines led on through the gutters.

import type { Inside, Point } from "./layered";

const TALL = 700; // lower pictures stay as they are
const LANE = 9;
const MARGIN = 20;

export function inColumns(inside: Inside, aspect: number): Inside {
  const { width, height } = inside;
  const guess = Math.min(24, Math.round(Math.sqrt((aspect * height) / (width + 2 * MARGIN))));
  if (height < TALL || guess < 2) return inside;
  let best = inside;
  for (let wanted = Math.max(2, guess - 1); wanted <= guess + 2; wanted++) {
    const cuts = chooseCuts(inside, wanted);
    const tried = cuts.length ? arranged(copy(inside), cuts) : inside;
    if (size(tried, aspect) < size(best, aspect)) best = tried;
  }
  return best;
}

/** How large a window of that shape has to be to show it all. */
const size = ({ width, height }: Inside, aspect: number) => Math.max(width / aspect, height);

function copy({ width, height, boxes, lines }: Inside): Inside {
  return {
    width, height, boxes: new Map([...boxes].map(([key, rect]) => [key, { ...rect }])),
    lines: new Map([...lines].map(([key, line]) => [key, { ...line, points: line.points.map((p) => ({ ...p })) }])),
  };
}

/** Heights at which no box stands, the best near each equal part. */
function chooseCuts({ boxes, lines, height }: Inside, wanted: number): number[] {
  const rects = [...boxes.values()].sort((a, b) => a.y - b.y);
  const free: number[] = [];
  let bottom = -Infinity;
  for (const rect of rects) {
    if (rect.y > bottom && bottom > -Infinity) free.push((bottom + rect.y) / 2);
    bottom = Math.max(bottom, rect.y + rect.height);
  }
  const crossing = (y: number) => {
    let n = 0;
    for (const { points } of lines.values()) if (points[0].y < y && points[points.length - 1].y > y) n++;
    return n;
  };
  const cuts: number[] = [];
  const share = height / wanted;
  for (let k = 1; k < wanted; k++) {
    const near = free.filter((y) => Math.abs(y - k * share) < 0.4 * share && y > (cuts[cuts.length - 1] ?? 0) + 0.3 * share);
    const cost = (y: number) => crossing(y) + (2 * Math.abs(y - k * share)) / share;
    if (near.length) cuts.push(near.reduce((a, b) => (cost(b) < cost(a) ? b : a)));
  }
  return cuts;
}

function arranged({ boxes, lines }: Inside, cuts: number[]): Inside {
  const column = (y: number) => cuts.filter((cut) => cut < y).length;
  const count = cuts.length + 1;
  const left = new Array(count).fill(Infinity);
  const right = new Array(count).fill(-Infinity);
  const bottom = new Array(count).fill(0);
  const lanes = new Array(count).fill(0); // lines that leave each column
  for (const rect of boxes.values()) {
    const k = column(rect.y);
    left[k] = Math.min(left[k], rect.x);
    right[k] = Math.max(right[k], rect.x + rect.width);
    bottom[k] = Math.max(bottom[k], rect.y + rect.height);
  }
  for (const { points } of lines.values()) {
    const [first, last] = [column(points[0].y), column(points[points.length - 1].y)];
    for (let k = first; k < last; k++) lanes[k]++;
    for (const { x, y } of points) {
      const k = column(y);
      left[k] = Math.min(left[k], x);
      right[k] = Math.max(right[k], x);
    }
  }
  const most = Math.max(...lanes) * LANE;
  const above = most ? most + MARGIN : 0;
  const starts = [0, ...cuts];
  const dx: number[] = [];
  let at = 0;
  for (let k = 0; k < count; k++) {
    dx.push(at - left[k]);
    at += right[k] - left[k] + (k + 1 < count ? 2 * MARGIN + lanes[k] * LANE : 0);
  }
  const tops = starts.map((start, k) => (k ? start - MARGIN : start) - above);
  const columnHeight = Math.max(...bottom.map((b, k) => b - tops[k]));
  const move = ({ x, y }: Point): Point => ({ x: x + dx[column(y)], y: y - tops[column(y)] });
  for (const rect of boxes.values()) Object.assign(rect, move(rect));
  const used = new Array(count).fill(0);
  for (const line of lines.values()) {
    const ends = line.to.startsWith("out ");
    line.points = led(line.points, column, move, (k) => {
      const lane = used[k]++;
      return { low: bottom[k] - tops[k] + MARGIN + lane * LANE, gutter: right[k] + dx[k] + MARGIN + lane * LANE, high: above - MARGIN - lane * LANE };
    });
    if (ends) line.points[line.points.length - 1].y = columnHeight + (most ? most + MARGIN : 0);
    if (line.from.startsWith("in ")) line.points[0].y = 0;
  }
  return { width: at, height: columnHeight + (most ? most + MARGIN : 0), boxes, lines };
}

/** The points in their columns, with the way from each column's foot to the next one's head. */
function led(points: Point[], column: (y: number) => number, move: (p: Point) => Point,
             lane: (k: number) => { low: number; gutter: number; high: number }): Point[] {
  const found: Point[] = [move(points[0])];
  for (let i = 1; i < points.length; i++) {
    const target = move(points[i]);
    const [first, last] = [column(points[i - 1].y), column(points[i].y)];
    for (let k = first; k < last; k++) {
      const here = found[found.length - 1];
      const { low, gutter, high } = lane(k);
      const x = k + 1 === last ? target.x : undefined;
      found.push({ x: here.x, y: low }, { x: gutter, y: low }, { x: gutter, y: high });
      if (x !== undefined) found.push({ x, y: high });
    }
    found.push(target);
  }
  return found;
}
