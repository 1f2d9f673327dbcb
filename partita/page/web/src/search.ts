// Find boxes by name, op or device.

import { h, put } from "./dom";
import { colour, swatch } from "./owners";
import { spoken } from "./shapes";
import type { State } from "./state";
import { cut } from "./words";

const MOST = 12;

export class Search {
  readonly element: HTMLElement;
  readonly field = h("input", { type: "search", placeholder: "Search nodes", "aria-label": "Search nodes by name, op or device", role: "combobox",
    "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false" });
  private readonly list = h("ul", { id: "found", role: "listbox", "aria-label": "Found", class: "found" });
  private readonly texts = new Map<number, string>();
  private runs: Map<number, string> | undefined;
  private found: number[] = [];
  private at = 0;

  constructor(private readonly state: State, private readonly go: (box: number) => void) {
    this.element = h("div", { class: "search" }, this.field, this.list);
    this.field.addEventListener("input", () => this.look());
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.close();
  }

  begin(): void {
    this.field.focus();
    this.field.select();
  }

  private look(): void {
    const wanted = this.field.value.trim().toLowerCase().replace(/\s+/g, " ");
    const { items } = this.state.scene;
    const words = wanted.split(/[\s·…]+/).filter(Boolean);
    const score = (i: number) => {
      const [name, label] = [items[i].name.toLowerCase(), items[i].label.toLowerCase()];
      if (name === wanted || `${label} ${name}` === wanted) return items[i].kind === "output" ? 1 : 0;
      if (name.startsWith(wanted)) return 1;
      if (name.includes(wanted)) return 2;
      if (label.startsWith(wanted)) return 3;
      return words.length && words.every((word) => this.written(i).includes(word)) ? (items[i].kind === "op" ? 4 : 5) : -1;
    };
    const scored = wanted ? items.map((_, i) => [score(i), i]).filter(([points]) => points >= 0) : [];
    scored.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    this.found = scored.slice(0, MOST).map(([, i]) => i);
    this.at = 0;
    this.show(wanted, scored.length);
  }

  /** Everything that the page writes of a box. */
  private written(i: number): string {
    let text = this.texts.get(i);
    if (text === undefined) {
      const { items } = this.state.scene;
      const inside = items[i].kind === "kernel" ? this.state.tree.children[i].map((child) => items[child].name).join(" ") : "";
      this.texts.set(i, (text = `${spoken(items[i])} ${inside} ${this.ran(i)}`.toLowerCase()));
    }
    return text;
  }

  /** What the run below writes of a box: its kernels, by other names than the box's. */
  private ran(box: number): string {
    if (!this.runs) {
      this.runs = new Map();
      for (const { item, what, name } of this.state.scene.bars) this.runs.set(item, `${this.runs.get(item) ?? ""} ${what} ${name}`);
    }
    return this.runs.get(box) ?? "";
  }

  /** Look for a name that somebody else asked for. */
  ask(name: string): void {
    this.field.value = name;
    this.field.focus();
    this.look();
  }

  private show(wanted: string, count: number): void {
    if (!wanted) return this.close();
    const options = this.found.map((box, i) => {
      const item = this.state.scene.items[box];
      return h("li", { role: "option", id: `found-${i}`, "aria-selected": String(i === this.at), "data-box": box, pointerdown: (event: Event) => { event.preventDefault(); this.take(i); } },
        swatch(colour(this.state.scene, item)), h("span", {}, cut(item.name, 44)), h("span", { class: "muted" }, ` ${item.label}`));
    });
    const rest = count > this.found.length ? `${count - this.found.length} more` : count ? "" : "nothing found";
    put(this.list, ...options, rest ? h("li", { class: "muted", role: "presentation" }, rest) : null);
    this.list.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    if (this.found.length) this.field.setAttribute("aria-activedescendant", `found-${this.at}`);
  }

  private key(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Escape") {
      this.close();
      this.field.blur();
    } else if (event.key === "Enter") this.take(this.at);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      this.at = (this.at + (event.key === "ArrowDown" ? 1 : -1) + this.found.length) % (this.found.length || 1);
      [...this.list.querySelectorAll("[role=option]")].forEach((option, i) => option.setAttribute("aria-selected", String(i === this.at)));
      this.field.setAttribute("aria-activedescendant", `found-${this.at}`);
    }
  }

  private take(i: number): void {
    if (i >= this.found.length) return;
    this.close();
    this.field.blur();
    this.go(this.found[i]);
  }

  private close(): void {
    this.list.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }
}
