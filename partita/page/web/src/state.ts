// What is open, what is chosen, and who has to hear of it.

import { changesAt } from "./changes";
import type { Change, Scene } from "./data";
import type { Drawn, Picture } from "./layout";
import { colour } from "./owners";
import { Replan } from "./replan";
import { LayoutService } from "./worker";
import { Tree } from "./tree";
import { time } from "./words";
import { boxHeight, boxWidth, headWidth } from "./shapes";

export type Choice = { box: number } | { from: number; to: number } | null;
type Event = "picture" | "choice" | "heat";

const SCREENFUL = 6000; // "open all" goes no further than this many boxes

export class State {
  readonly tree: Tree;
  readonly pairs: Int32Array;
  /** What changed at a box and inside it. */
  readonly changes: Map<number, Change[]>;
  readonly open: Set<number>;
  /** Only on the page of a placement by cost. */
  readonly replan: Replan | null;
  picture: Picture = { width: 0, height: 0, boxes: [], lines: [] };
  choice: Choice = null;
  heat: boolean;
  /** What a whole bar stands for: the longest time of a box that is shown closed. */
  mostUs = 0;
  private readonly service: LayoutService;
  private readonly listeners: Record<Event, (() => void)[]> = { picture: [], choice: [], heat: [] };

  constructor(readonly scene: Scene, private readonly aspect: () => number) {
    const { items } = scene;
    const parents = Int32Array.from(items, (item) => item.parent);
    this.tree = new Tree(parents);
    this.changes = changesAt(this);
    this.pairs = Int32Array.from(scene.edges.flatMap(([value, reader]) => [scene.values[value].source, reader]));
    this.open = new Set(items.flatMap((item, i) => (item.is_open ? [i] : [])));
    this.replan = scene.costs ? new Replan(this, scene.costs) : null;
    this.heat = scene.bars.length > 0;
    const widths = Float32Array.from(items, (item) => boxWidth(item));
    const heights = Float32Array.from(items, (item) => boxHeight(item));
    const heads = Float32Array.from(items, (item) => headWidth(item));
    this.service = new LayoutService({ parents, pairs: this.pairs, widths, heights, heads });
  }

  /** How many ops of each colour are inside a box. */
  shares(box: number): Map<string, number> {
    const found = new Map<string, number>();
    const waiting = [box];
    while (waiting.length) {
      const at = waiting.pop()!;
      const item = this.scene.items[at];
      if (item.kind === "op") found.set(colour(this.scene, item), (found.get(colour(this.scene, item)) ?? 0) + 1);
      waiting.push(...this.tree.children[at]);
    }
    return new Map([...found].sort());
  }

  on(event: Event, act: () => void): void {
    this.listeners[event].push(act);
  }

  private tell(event: Event): void {
    for (const act of this.listeners[event]) act();
  }

  async layOut(): Promise<void> {
    this.picture = await this.service.ask([...this.open], Math.round(this.aspect() * 5) / 5);
    this.mostUs = this.picture.boxes.reduce((most, { box, open }) => (open ? most : Math.max(most, this.scene.items[box].us)), 0);
    this.tell("picture");
  }

  /** What the bars in the boxes say. */
  barSays(): string {
    return this.heat && this.mostUs > 0 ? `time; a whole bar is ${time(this.mostUs)}` : "";
  }

  /** The boxes have other owners. */
  renew(): void {
    this.tell("picture");
  }

  choose(choice: Choice): void {
    this.choice = choice;
    this.tell("choice");
  }

  setHeat(heat: boolean): void {
    this.heat = heat;
    this.tell("heat");
  }

  toggle(box: number): Promise<void> {
    if (!this.tree.holds(box)) return Promise.resolve();
    if (!this.open.delete(box)) this.open.add(box);
    this.mendChoice();
    return this.layOut();
  }

  /** Open everything, the outermost first, as far as the page stays quick. */
  openAll(): Promise<void> {
    let room = SCREENFUL - this.tree.roots.length;
    const reached = [...this.tree.roots];
    for (const box of reached) {
      const inside = this.tree.children[box];
      if (!inside.length || inside.length > room) continue;
      this.open.add(box);
      room -= inside.length;
      reached.push(...inside);
    }
    return this.layOut();
  }

  closeAll(): Promise<void> {
    this.open.clear();
    this.mendChoice();
    return this.layOut();
  }

  /** Open what hides the box, and choose it. */
  async reveal(box: number): Promise<void> {
    const hiding = this.tree.ancestors(box).filter((around) => !this.open.has(around));
    for (const around of hiding) this.open.add(around);
    if (hiding.length) await this.layOut();
    this.choose({ box });
  }

  line(from: number, to: number): Drawn | undefined {
    return this.picture.lines.find((line) => line.from === from && line.to === to);
  }

  /** What is chosen and no longer seen: choose what hides it. */
  private mendChoice(): void {
    if (!this.choice) return;
    if ("box" in this.choice) this.choose({ box: this.tree.seen(this.choice.box, this.open) });
    else this.choose(null);
  }
}
