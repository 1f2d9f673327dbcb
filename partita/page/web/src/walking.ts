// From box to box by the arrow keys.

import type { Placed } from "./layout";
import type { State } from "./state";

export type Way = "up" | "down" | "left" | "right";

/** The box next to the chosen one: up to a producer, down to a reader, sideways to the nearest. */
export function next(state: State, way: Way): number | undefined {
  const { boxes, lines } = state.picture;
  const at = state.choice && "box" in state.choice ? state.choice.box : -1;
  const here = boxes.find(({ box }) => box === at);
  if (!here) return boxes[0]?.box;
  if (way === "up") return nearest(here, lines.filter(({ to }) => to === at).map(({ from }) => from), boxes);
  if (way === "down") return nearest(here, lines.filter(({ from }) => from === at).map(({ to }) => to), boxes) ?? firstInside(state, here);
  const aside = boxes.filter((other) => other.box !== at && !other.open && other.y < here.y + here.height && other.y + other.height > here.y
    && (way === "left" ? other.x < here.x : other.x > here.x));
  return nearest(here, aside.map(({ box }) => box), boxes);
}

function nearest(here: Placed, wanted: number[], boxes: Placed[]): number | undefined {
  const set = new Set(wanted);
  const away = (other: Placed) => Math.hypot(other.x + other.width / 2 - here.x - here.width / 2, other.y - here.y);
  let found: Placed | undefined;
  for (const box of boxes) if (set.has(box.box) && (!found || away(box) < away(found))) found = box;
  return found?.box;
}

function firstInside(state: State, here: Placed): number | undefined {
  return here.open ? state.tree.children[here.box][0] : undefined;
}
