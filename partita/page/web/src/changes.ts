// What changed since an earlier report: a list by kind, and a mark on the boxes.

import type { Change } from "./data";
import { link, shortList } from "./details";
import { h } from "./dom";
import type { State } from "./state";

type Go = (box: number) => void;

/** The changes of each box, and of those around it. */
export function changesAt(state: State): Map<number, Change[]> {
  const found = new Map<number, Change[]>();
  for (const change of state.scene.changes) {
    if (change.item < 0) continue;
    for (const box of [change.item, ...state.tree.ancestors(change.item)]) {
      const known = found.get(box);
      if (known) known.push(change);
      else found.set(box, [change]);
    }
  }
  return found;
}

/** The page of the panel. */
export function changeList(state: State, go: Go): HTMLElement {
  const { scene } = state;
  const body = h("tbody");
  for (const [what, was, now] of scene.compared) body.append(h("tr", {}, h("td", {}, what), h("td", { class: "number" }, was), h("td", { class: "number" }, was === now ? "same" : now)));
  const head = h("thead", {}, h("tr", {}, h("th", {}, ""), h("th", { class: "number" }, "before"), h("th", { class: "number" }, "now")));
  const page = h("section", {}, h("h2", {}, "Changes"), h("p", { class: "muted" }, `since ${scene.before}`), h("table", {}, head, body));
  for (const kind of new Set(scene.changes.map(({ what }) => what))) {
    const changes = scene.changes.filter(({ what }) => what === kind);
    page.append(h("h3", {}, `${kind} (${changes.length})`), shortList(changes.map(({ item, name, text }) => () =>
      h("div", {}, item < 0 ? h("span", {}, name) : link(state, item, go), h("div", { class: "muted" }, text))), 20));
  }
  if (!scene.changes.length) page.append(h("p", { class: "muted" }, "Nothing moved, and no time changed."));
  return page;
}
