// Lines as SVG paths: straight along the axes, else bending from vertical to vertical.

import type { Point } from "./layered";

const n = (value: number) => value.toFixed(1);
const ROUND = 7;

export function path(points: Point[]): string {
  let text = `M${n(points[0].x)} ${n(points[0].y)}`;
  for (let i = 1; i < points.length; i++) {
    const [a, b, c] = [points[i - 1], points[i], points[i + 1]];
    if (!straight(a, b)) {
      const middle = (a.y + b.y) / 2;
      text += `C${n(a.x)} ${n(middle)} ${n(b.x)} ${n(middle)} ${n(b.x)} ${n(b.y)}`;
    } else if (c && straight(b, c) && (a.y === b.y) !== (b.y === c.y)) text += corner(a, b, c);
    else text += `L${n(b.x)} ${n(b.y)}`;
  }
  return text;
}

/** The same without curves, for where they cannot be seen. */
export function rough(points: Point[]): string {
  let text = "M";
  for (const { x, y } of points) text += `${Math.round(x)} ${Math.round(y)} `;
  return text;
}

const straight = (a: Point, b: Point) => Math.abs(a.x - b.x) < 0.5 || a.y === b.y;

function corner(a: Point, b: Point, c: Point): string {
  const towards = (p: Point) => {
    const length = Math.abs(p.x - b.x) + Math.abs(p.y - b.y) || 1;
    const share = Math.min(ROUND, length / 2) / length;
    return `${n(b.x + (p.x - b.x) * share)} ${n(b.y + (p.y - b.y) * share)}`;
  };
  return `L${towards(a)}Q${n(b.x)} ${n(b.y)} ${towards(c)}`;
}

const SAMPLES = 8;

/** The distance from a point to a line as it is drawn. */
export function distance(points: Point[], x: number, y: number): number {
  let least = Infinity;
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]];
    let before = a;
    const steps = straight(a, b) ? 1 : SAMPLES;
    for (let k = 1; k <= steps; k++) {
      const here = steps === 1 ? b : onCurve(a, b, k / steps);
      least = Math.min(least, toSegment(before, here, x, y));
      before = here;
    }
  }
  return least;
}

function onCurve(a: Point, b: Point, t: number): Point {
  const middle = (a.y + b.y) / 2;
  const [p, q, r, u] = [(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t * t, t ** 3];
  return { x: (p + q) * a.x + (r + u) * b.x, y: p * a.y + (q + r) * middle + u * b.y };
}

function toSegment(a: Point, b: Point, x: number, y: number): number {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const t = Math.min(1, Math.max(0, ((x - a.x) * dx + (y - a.y) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(a.x + t * dx - x, a.y + t * dy - y);
}
