// Find boxes by name, op or device.

import { h, put } from "./dom";
import { colour } from "./owners";
import type { State } from "./state";
import { cut } from "./words";

const MOST = 12;

export class Search {
  readonly element: HTMLElement;
  readonly field = h("input", { type: "search", placeholder: "Search nodes  ( / )", "aria-label": "Search nodes by name or op", role: "combobox",
    "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false" });
  private readonly list = h("ul", { id: "found", role: "listbox", "aria-label": "Found", class: "found" });
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
    const wanted = this.field.value.trim().toLowerCase();
    const { items } = this.state.scene;
    const score = (i: number) => {
      const [name, label] = [items[i].name.toLowerCase(), items[i].label.toLowerCase()];
      if (name === wanted) return items[i].kind === "output" ? 1 : 0;
      if (name.startsWith(wanted)) return 1;
      if (name.includes(wanted)) return 2;
      return label.startsWith(wanted) ? 3 : items[i].kind === "op" && label.includes(wanted) ? 4 : -1;
    };
    const scored = wanted ? items.map((_, i) => [score(i), i]).filter(([points]) => points >= 0) : [];
    scored.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    this.found = scored.slice(0, MOST).map(([, i]) => i);
    this.at = 0;
    this.show(wanted, scored.length);
  }

  private show(wanted: string, count: number): void {
    if (!wanted) return this.close();
    const options = this.found.map((box, i) => {
      const item = this.state.scene.items[box];
      return h("li", { role: "option", id: `found-${i}`, "aria-selected": String(i === this.at), "data-box": box, pointerdown: (event: Event) => { event.preventDefault(); this.take(i); } },
        h("span", { class: `dot ${colour(this.state.scene, item)}` }), h("span", {}, cut(item.name, 44)), h("span", { class: "muted" }, ` ${item.label}`));
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
