// The panel at the side: overview, subgraphs, refusals, and what was chosen.

import { changeList } from "./changes";
import { h, put } from "./dom";
import { boxDetails, edgeDetails, link, shortList } from "./details";
import type { Facts } from "./facts";
import type { Links } from "./link";
import { legend, ownerColour, swatch } from "./owners";
import { oddOnes, recordedPage } from "./recorded";
import type { State } from "./state";
import { bytes, count, time } from "./words";

type Go = (box: number) => void;

export class Panel {
  readonly element: HTMLElement;
  private readonly body = h("div", { class: "panel-body", role: "tabpanel", tabindex: 0, id: "panel-body" });
  private readonly tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Report" });
  private readonly pages: [string, () => Node][];
  private at = 0;

  constructor(private readonly state: State, private readonly facts: Facts, private readonly links: Links, private readonly go: Go) {
    const { scene } = state;
    this.pages = [["Overview", () => this.overview()]];
    if (scene.before) this.pages.push([`Changes ${scene.changes.length}`, () => changeList(state, go)]);
    if (scene.subgraphs.length) this.pages.push([`Subgraphs ${scene.subgraphs.length}`, () => this.subgraphs()]);
    if (scene.recorded) this.pages.push([oddOnes(state) ? `Recorded ${oddOnes(state)} odd` : "Recorded", () => recordedPage(state, go)]);
    if (scene.refusals.length) this.pages.push([`Refusals ${scene.refusals.length}`, () => this.refusals()]);
    this.pages.push(["Selection", () => this.selection()]);
    this.pages.forEach(([name], i) => this.tabs.append(h("button", { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": "panel-body", click: () => this.show(i) }, name)));
    this.tabs.addEventListener("keydown", (event) => this.key(event));
    this.element = h("aside", { class: "panel", "aria-label": "Report" }, this.tabs, this.body);
    state.on("choice", () => state.choice && this.show(this.pages.length - 1));
    for (const event of ["picture", "heat"] as const) state.on(event, () => (this.at === 0 || this.at === this.pages.length - 1) && this.show(this.at));
    this.show(0);
  }

  private show(i: number): void {
    const above = i === this.at ? this.body.scrollTop : 0;
    this.at = i;
    [...this.tabs.children].forEach((tab, k) => {
      tab.setAttribute("aria-selected", String(k === i));
      tab.setAttribute("tabindex", k === i ? "0" : "-1");
    });
    this.body.setAttribute("aria-labelledby", `tab-${i}`);
    put(this.body, this.pages[i][1]());
    this.body.scrollTop = above;
  }

  private key(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    this.show((this.at + step + this.pages.length) % this.pages.length);
    (this.tabs.children[this.at] as HTMLElement).focus();
  }

  private overview(): Node {
    const { scene } = this.state;
    const facts = h("dl");
    for (const [what, value] of scene.facts) facts.append(h("dt", {}, what), h("dd", {}, value));
    const page = h("section", {}, h("h2", {}, scene.title), h("p", { class: "muted" }, scene.subtitle), legend(scene, this.state.barSays()), facts, h("h3", {}, "Transfers"));
    if (this.state.replan) page.insertBefore(this.state.replan.summary(), page.lastChild);
    if (scene.transfers.length) page.append(this.transferTable());
    else page.append(h("p", { class: "muted" }, `Nothing goes from one ${scene.owned_by} to another.`));
    if (scene.notes.length) page.append(h("h3", {}, "Notes"), shortList(scene.notes.map((note) => () => h("span", {}, note)), 12));
    return page;
  }

  private transferTable(): HTMLElement {
    const body = h("tbody");
    const row = (way: string, values: number, nbytes: number, unknown: number) => {
      const size = !unknown ? bytes(nbytes) : unknown === values ? "unknown" : `${bytes(nbytes)} + ${unknown} unknown`;
      return h("tr", {}, h("td", {}, way), h("td", { class: "number" }, values), h("td", { class: "number" }, size));
    };
    const all = this.state.scene.transfers;
    for (const { source, target, values, nbytes, unknown } of all) body.append(row(`${source} → ${target}`, values, nbytes, unknown));
    const sum = (of: "values" | "nbytes" | "unknown") => all.reduce((total, transfer) => total + transfer[of], 0);
    const foot = h("tfoot", {}, row("all", sum("values"), sum("nbytes"), sum("unknown")));
    return h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "way"), h("th", { class: "number" }, "values"), h("th", { class: "number" }, "bytes"))), body, ...(all.length > 1 ? [foot] : []));
  }

  private subgraphs(): Node {
    const { scene } = this.state;
    const entries = scene.subgraphs.map(({ item, ops, seconds }) => () => {
      const box = scene.items[item];
      const facts = [box.owner, count(ops, "op"), box.us >= 0 ? time(box.us) : "", seconds >= 0 ? `compiled in ${seconds.toFixed(2)} s` : ""];
      return h("div", {}, link(this.state, item, this.go), h("div", { class: "muted" }, facts.filter(Boolean).join(" · ")));
    });
    return h("section", {}, h("h2", {}, count(entries.length, "subgraph")), shortList(entries, 60));
  }

  private refusals(): Node {
    const { scene } = this.state;
    const page = h("section", {}, h("h2", {}, "Refusals by reason"));
    let last = "";
    const sorted = [...scene.refusals].sort((a, b) => (a.what < b.what ? -1 : a.what > b.what ? 1 : 0));
    for (const { what, rule, text, items } of sorted) {
      if (what !== last) page.append(h("h3", {}, swatch(ownerColour(scene, what.replace("not on ", ""))), (last = what)));
      page.append(h("details", { class: "reason" },
        h("summary", {}, h("span", { class: "tally" }, items.length), rule ? h("span", { class: "rule" }, rule) : null, ` ${text}`),
        shortList(items.map((box) => () => link(this.state, box, this.go)), 30)));
    }
    return page;
  }

  private selection(): Node {
    const { choice } = this.state;
    if (!choice) return h("p", { class: "muted" }, "Click a box or an edge: here it says what it is, and why it is where it is. Dashed edges end at a subgraph's border.");
    return "box" in choice ? boxDetails(this.state, this.facts, this.links, choice.box, this.go) : edgeDetails(this.state, this.facts, choice.from, choice.to, this.go);
  }
}
