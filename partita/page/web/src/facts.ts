// What is known of each box and edge, found by number.

import type { Refusal, Scene, Value, Wall } from "./data";
import type { Drawn } from "./layout";
import type { State } from "./state";

export class Facts {
  readonly walls = new Map<string, Wall>();
  readonly made: Value[][];
  readonly read: number[][]; // numbers of edges into each item
  readonly readers: number[][]; // numbers of edges out of each item
  readonly refusals: Refusal[][];

  constructor(readonly scene: Scene) {
    const lists = <T>(): T[][] => scene.items.map(() => []);
    for (const wall of scene.walls) this.walls.set(`${wall.producer},${wall.consumer}`, wall);
    this.made = lists();
    for (const value of scene.values) this.made[value.source].push(value);
    this.read = lists();
    this.readers = lists();
    scene.edges.forEach(([value, reader], i) => {
      this.read[reader].push(i);
      this.readers[scene.values[value].source].push(i);
    });
    this.refusals = lists();
    for (const refusal of scene.refusals) for (const item of refusal.items) this.refusals[item].push(refusal);
  }

  value(edge: number): Value {
    return this.scene.values[this.scene.edges[edge][0]];
  }

  reader(edge: number): number {
    return this.scene.edges[edge][1];
  }

  wall(edge: number): Wall | undefined {
    return this.walls.get(`${this.value(edge).source},${this.reader(edge)}`);
  }

  /** The borders that a drawn line crosses, by reason. */
  wallsOf(line: Drawn): Wall[] {
    return line.edges.flatMap((edge) => this.wall(edge) ?? []);
  }

  /** Does some value on the line end at a subgraph's border? */
  isBorder = (line: Drawn): boolean => line.edges.some((edge) => this.wall(edge) !== undefined);

  /** Every border at this box and at what is inside. */
  wallsAround(state: State, box: number): Wall[] {
    const inside = (other: number): boolean => other === box || state.tree.ancestors(other).includes(box);
    return this.scene.walls.filter((wall) => inside(wall.producer) !== inside(wall.consumer));
  }
}
