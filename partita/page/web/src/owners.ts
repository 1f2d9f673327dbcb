// A colour for each device, or for each property where there are no devices; where colours run out, a colour with a pattern on it.

import { h, s } from "./dom";
import type { Item, Scene } from "./data";

export const COLOURS = 8; // hues that can be told apart
export const MARKS = 6; // none, then the patterns

const known = new WeakMap<Scene, Map<string, string>>();

/** The classes of a box: its colour, and its pattern if it has one. */
export function colour(scene: Scene, item: Item): string {
  return item.kind === "input" || item.kind === "output" ? "edge" : ownerColour(scene, item.owner);
}

export function ownerColour(scene: Scene, owner: string): string {
  let names = known.get(scene);
  if (!names) {
    const listed = scene.owners.filter((name) => name !== "" && name !== "outside");
    known.set(scene, (names = new Map(listed.map((name, i) => [name, classes(i)]))));
  }
  return names.get(owner) ?? "none";
}

function classes(i: number): string {
  const mark = Math.floor(i / COLOURS) % MARKS;
  return `p${i % COLOURS}${mark ? ` m${mark}` : ""}`;
}

/** What lies on a shape of these classes, if it bears a pattern. */
export const markOf = (classes: string): string | undefined => / m(\d)/.exec(classes)?.[1];

const WAYS = ["M0 8L8 0M-2 2L2 -2M6 10L10 6", "M0 0L8 8M-2 6L2 10M6 -2L10 2", "M4 4h.01", "M0 4H8", "M4 0V8"];

/** The patterns, for the drawing's definitions. */
export function patterns(): SVGElement[] {
  return WAYS.map((d, i) => s("pattern", { id: `m${i + 1}`, class: "pattern", width: 8, height: 8, patternUnits: "userSpaceOnUse" },
    s("path", { d, "stroke-width": i === 2 ? 3.4 : 1.4, "stroke-linecap": i === 2 ? "round" : "butt" })));
}

/** A small square in an owner's colour. */
export function swatch(classes: string, kind = "dot"): SVGElement {
  const mark = markOf(classes);
  const square = (fill: string | undefined, name: string) => s("rect", { class: name, x: 0.5, y: 0.5, width: 10, height: 10, rx: 3, ...(fill ? { fill } : {}) });
  return s("svg", { class: `${kind} ${classes}`, viewBox: "0 0 11 11", width: 11, height: 11, "aria-hidden": "true" }, square(undefined, "ground"), mark ? square(`url(#m${mark})`, "mark") : null);
}

/** The colours and what they stand for. */
export function legend(scene: Scene, bar: string): HTMLElement {
  const used = new Set(scene.items.filter((item) => item.kind !== "input" && item.kind !== "output").map((item) => item.owner));
  const list = h("ul", { class: "legend", "aria-label": "Colours" });
  const entry = (owner: string, says: string) => list.append(h("li", {}, swatch(ownerColour(scene, owner), "swatch"), says));
  scene.owners.forEach((owner, i) => owner !== "outside" && (used.has(owner) || i === 0) && entry(owner, owner));
  if (used.has("")) entry("", "no device or subgraph");
  list.append(h("li", {}, h("span", { class: "wire-swatch" }), "border"));
  if (scene.before) list.append(h("li", {}, h("span", { class: "changed-swatch" }), "changed"));
  if (bar) list.append(h("li", {}, h("span", { class: "heat-swatch" }), bar));
  return list;
}
