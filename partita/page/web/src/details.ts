// What the panel says of the box or edge that was chosen.

import { h } from "./dom";
import type { Wall } from "./data";
import type { Facts } from "./facts";
import type { Links } from "./link";
import { colour, swatch } from "./owners";
import { called } from "./shapes";
import type { State } from "./state";
import { bytes, count, cut, time } from "./words";

type Go = (box: number) => void;
const MOST = 40;

const rows = (pairs: [string, string | Node | null][]) => {
  const list = h("dl");
  for (const [what, value] of pairs) if (value !== null && value !== "") list.append(h("dt", {}, what), h("dd", {}, value));
  return list;
};

export function link(state: State, box: number, go: Go): HTMLElement {
  const item = state.scene.items[box];
  const text = item.kind === "op" ? called(item) : item.name;
  return h("button", { type: "button", class: "link", click: () => go(box), "data-go": box }, swatch(colour(state.scene, item)), text);
}

/** A list that shows its first entries, and the rest when asked. */
export function shortList(entries: (() => Node)[], most = MOST): HTMLElement {
  const list = h("ul", { class: "list" });
  let shown = 0;
  const more = h("button", { type: "button", class: "more", click: () => grow() });
  const grow = () => {
    for (const make of entries.slice(shown, shown + most)) list.append(h("li", {}, make()));
    shown = Math.min(entries.length, shown + most);
    more.textContent = `show more (${entries.length - shown} left)`;
    if (shown === entries.length) more.remove();
  };
  const whole = h("div", {}, list, more);
  grow();
  return whole;
}

export function boxDetails(state: State, facts: Facts, links: Links, box: number, go: Go): HTMLElement {
  const { items } = state.scene;
  const item = items[box];
  const around = items[box].parent;
  const holds = state.tree.holds(box);
  const section = h("section", { class: "details" }, h("h2", {}, item.kind === "op" || item.kind === "kernel" ? item.label : item.name));
  section.append(rows([
    [item.kind, item.kind === "op" || item.kind === "kernel" ? item.name : item.label],
    [state.scene.owned_by, item.owner],
    ["in", around >= 0 ? link(state, around, go) : null],
    ["by hand", state.replan?.choice(box) ?? null],
    ["took", item.us >= 0 ? time(item.us) : null],
    ["link", h("a", { href: links.of(box), class: "link" }, cut(links.of(box), 60))],
  ]));
  if (state.replan) section.append(state.replan.summary());
  if (holds) section.append(h("button", { type: "button", class: "wide", click: () => void state.toggle(box) }, state.open.has(box) ? "Close" : "Open"));
  for (const refusal of facts.refusals[box]) section.append(h("p", { class: "refused" }, h("strong", {}, refusal.what), `: ${refusal.text}`));
  for (const { item: at, what, text } of state.changes.get(box) ?? []) if (at === box) section.append(h("p", { class: "changed-note" }, h("strong", {}, what), `: ${text}`));
  if (item.details.length) section.append(h("h3", {}, "Details"), h("pre", {}, item.details.join("\n")));
  if (facts.made[box].length) section.append(h("h3", {}, "Makes"), h("pre", {}, facts.made[box].map((v) => (v.type ? `${v.name}: ${v.type}` : v.name)).join("\n")));
  neighbours(section, "Reads from", facts.read[box].map((edge) => facts.value(edge).source), state, go);
  neighbours(section, "Read by", facts.readers[box].map((edge) => facts.reader(edge)), state, go);
  const walls = facts.wallsAround(state, box);
  if (walls.length) section.append(h("h3", {}, `Borders (${walls.length})`), wallList(state, walls, go));
  return section;
}

function neighbours(section: HTMLElement, title: string, boxes: number[], state: State, go: Go): void {
  const distinct = [...new Set(boxes)];
  if (distinct.length) section.append(h("h3", {}, title), shortList(distinct.map((other) => () => link(state, other, go)), 12));
}

function wallList(state: State, walls: Wall[], go: Go): HTMLElement {
  return shortList(walls.map((wall) => () => h("div", { class: "wall" },
    h("div", {}, link(state, wall.producer, go), " → ", link(state, wall.consumer, go)),
    h("div", {}, h("span", { class: "rule" }, wall.rule), ` ${wall.text}`))), 20);
}

export function edgeDetails(state: State, facts: Facts, from: number, to: number, go: Go): HTMLElement {
  const line = state.line(from, to);
  const edges = line?.edges ?? [];
  const walls = edges.flatMap((edge) => facts.wall(edge) ?? []);
  const values = [...new Set(edges.map((edge) => facts.value(edge)))];
  const known = values.filter((value) => value.nbytes >= 0).reduce((sum, value) => sum + value.nbytes, 0);
  const section = h("section", { class: "details" }, h("h2", {}, walls.length ? "Border" : "Edge"));
  section.append(rows([["from", link(state, from, go)], ["to", link(state, to, go)], ["carries", `${count(values.length, "value")}, ${bytes(known)}`]]));
  if (walls.length) section.append(h("h3", {}, "Why it ends here"), wallList(state, walls, go));
  section.append(h("h3", {}, "Values"), shortList(values.map((v) => () => h("code", {}, v.type ? `${v.name}: ${v.type}` : v.name)), 20));
  return section;
}
