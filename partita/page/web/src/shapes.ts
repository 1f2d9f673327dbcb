// How large a box is, and what is written in it.

import type { Item } from "./data";
import { cut, time } from "./words";

const LONGEST = 26;
const WIDE = 7.1; // a letter of the first line
const NARROW = 6.1; // of the second

export const holder = (item: Item) => ["call", "body", "kernel", "section"].includes(item.kind);

/** The two lines of a box: what it is, and its name; where it holds others, what it took, if it ran. */
export function lines(item: Item, took = false): [string, string] {
  const us = took && item.us >= 0 && holder(item) ? time(item.us) : "";
  if (item.kind === "kernel") return [cut(item.label, LONGEST), us || cut(item.name, LONGEST)];
  if (!holder(item)) return [cut(item.label, LONGEST), cut(item.name, LONGEST)];
  return [cut(item.name, LONGEST), us ? `${item.label} · ${us}` : item.label];
}

/** A box in words, as it is written: "Conv conv1", "conv_0 2 ops". */
export const called = (item: Item) => (holder(item) && item.kind !== "kernel" ? `${item.name} ${item.label}` : `${item.label} ${item.name}`);

/** The same for those who hear it, with its device and time. */
export const spoken = (item: Item) => `${called(item)}${item.owner ? ` on ${item.owner}` : ""}${item.us >= 0 ? ` ${time(item.us)}` : ""}`;

function length(text: string): number {
  let sum = 0;
  for (const letter of text) sum += letter.codePointAt(0)! > 0x2e80 ? 1.8 : 1;
  return sum;
}

export function boxWidth(item: Item): number {
  const [first, second] = lines(item, true);
  const extra = holder(item) ? 22 : 0;
  return Math.round(Math.max(84, length(first) * WIDE + 26 + extra, length(second) * NARROW + 26 + extra));
}

export const boxHeight = (item: Item) => (item.kind === "input" || item.kind === "output" ? 36 : 42);

/** How wide an open box has to be for its title. */
export function headWidth(item: Item): number {
  const [first, second] = lines(item, true);
  return Math.round((length(first) + length(second) + 3) * WIDE + 40);
}
