// A colour for each device, or for each property where there are no devices.

import type { Item, Scene } from "./data";

export const COLOURS = 9;

const known = new WeakMap<Scene, Map<string, string>>();

export function colour(scene: Scene, item: Item): string {
  return item.kind === "input" || item.kind === "output" ? "edge" : ownerColour(scene, item.owner);
}

export function ownerColour(scene: Scene, owner: string): string {
  let names = known.get(scene);
  if (!names) known.set(scene, (names = new Map(scene.owners.map((name, i) => [name, `p${i % COLOURS}`]))));
  return owner === "" || owner === "outside" ? "none" : names.get(owner) ?? "none";
}
