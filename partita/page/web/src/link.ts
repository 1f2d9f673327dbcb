// A link to a node: #node=NAME at the end of the page's address. What bears no name of its own has a number: #box=17.

import type { Scene } from "./data";

const NAMED = ["op", "call", "input"];

export class Links {
  private readonly byName = new Map<string, number>();

  constructor(private readonly scene: Scene) {
    scene.items.forEach(({ kind, name }, i) => NAMED.includes(kind) && !this.byName.has(name) && this.byName.set(name, i));
  }

  /** The end of the address that leads to a box. */
  of(box: number): string {
    const { name } = this.scene.items[box];
    return this.byName.get(name) === box ? `#node=${encodeURIComponent(name)}` : `#box=${box}`;
  }

  /** The box that the address names; the name alone if there is no such box; nothing if it names none. */
  asked(hash: string): number | string | undefined {
    const parts = /^#(node|box)=(.*)$/s.exec(hash);
    if (!parts) return undefined;
    const name = decoded(parts[2]);
    const box = parts[1] === "node" ? this.byName.get(name) : Number(name);
    return box !== undefined && Number.isInteger(box) && box >= 0 && box < this.scene.items.length ? box : name;
  }
}

/** Let the address end so. A page shown inside another, as in a notebook, has no address of its own. */
export function address(hash: string): void {
  if (location.hash === hash) return;
  try {
    history.replaceState(null, "", hash);
  } catch {
    return;
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray percent sign
  }
}
