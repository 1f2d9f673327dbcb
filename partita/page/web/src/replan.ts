// The devices that were chosen by hand on a page of a placement by cost, and what the rest of the graph then costs.

import { h } from "./dom";
import { crossings, planned, predicted, type Costs } from "./planning";
import type { State } from "./state";
import { count } from "./words";

const SHOWN = 8;

export class Replan {
  readonly pinned = new Map<number, number>();
  private readonly first: number[];
  private chosen: number[];
  private readonly ops: Map<number, number>;

  constructor(private readonly state: State, private readonly costs: Costs) {
    const { items } = state.scene;
    this.ops = new Map(costs.items.map((item, op) => [item, op]));
    this.first = this.chosen = costs.items.map((item) => costs.devices.indexOf(items[item].owner));
  }

  /** A choice of devices for the ops of a box; nothing where none has a cost. */
  choice(box: number): Node | null {
    const ops = this.inside(box);
    const { devices, times } = this.costs;
    const able = [...devices.keys()].filter((device) => ops.every((op) => times[op][device] !== null));
    if (!ops.length || !able.length) return null;
    const now = new Set(ops.map((op) => this.pinned.get(op)));
    const held = now.size === 1 ? [...now][0] : undefined;
    const list = h("select", { class: "small", "aria-label": "Device", change: () => this.pin(ops, Number(list.value)) },
      h("option", { value: -1, selected: held === undefined }, "the cheapest"),
      ...able.map((device) => {
        const us = ops.reduce((sum, op) => sum + times[op][device]!, 0);
        return h("option", { value: device, selected: held === device }, `${devices[device]}: ${this.amount(us)}`);
      }));
    return list;
  }

  /** What the plan costs now, and its hand-overs. */
  summary(): Node {
    const now = predicted(this.costs, this.chosen), before = predicted(this.costs, this.first);
    const cut = crossings(this.costs, this.chosen);
    const how = this.costs.devices.length === 2 ? "the optimum" : "found by expansion moves";
    const text = this.pinned.size ? `, ${how} with ${count(this.pinned.size, "op")} by hand; ${this.amount(before)} before` : "";
    const list = h("ul", { class: "list" }, ...cut.slice(0, SHOWN).map((one) => h("li", {}, `${one.name}: ${one.source} → ${one.destination}, ${this.amount(one.us)}`)));
    return h("div", { class: "replan" },
      h("p", {}, h("strong", { "data-cost": now, "data-cut": cut.length }, `predicted ${this.amount(now)}`), text),
      ...this.costs.notes.map((note) => h("p", { class: "muted" }, note)),
      h("p", {}, `${count(cut.length, "hand-over")}${cut.length > SHOWN ? `, the first ${SHOWN}:` : ""}`), list,
      this.pinned.size ? h("button", { type: "button", class: "small", click: () => this.reset() }, "As it was") : null);
  }

  private amount(us: number): string {
    return `${us.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} ${this.costs.unit}`;
  }

  private inside(box: number): number[] {
    const op = this.ops.get(box);
    return op !== undefined ? [op] : this.state.tree.children[box].flatMap((inner) => this.inside(inner));
  }

  private pin(ops: number[], device: number): void {
    for (const op of ops) if (device < 0) this.pinned.delete(op); else this.pinned.set(op, device);
    this.show(this.pinned.size ? planned(this.costs, this.pinned) : this.first);
  }

  private reset(): void {
    this.pinned.clear();
    this.show(this.first);
  }

  /** Colours the boxes by their new devices; a box whose ops have several has none. */
  private show(chosen: number[]): void {
    this.chosen = chosen;
    const { items } = this.state.scene;
    this.costs.items.forEach((item, op) => { items[item].owner = this.costs.devices[chosen[op]]; });
    items.forEach((item, box) => {
      const owners = this.ops.has(box) ? [] : [...new Set(this.inside(box).map((op) => this.costs.devices[chosen[op]]))];
      if (owners.length) item.owner = owners.length === 1 ? owners[0] : "";
    });
    this.state.renew();
  }
}
