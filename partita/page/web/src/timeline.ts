// The run as a flame: the whole, its steps, and what is inside each step. A click goes to the box; twice looks closer.

import type { Bar } from "./data";
import { button, h, put, s } from "./dom";
import { markOf, ownerColour } from "./owners";
import type { State } from "./state";
import { time } from "./words";

const ROW = 24;
const LEAST = 0.6; // narrower bars are not drawn

export class Timeline {
  readonly element: HTMLElement;
  private readonly svg = s("svg", { class: "flame", role: "img", height: 3 * ROW });
  private readonly says = h("span", { class: "muted", "aria-live": "off" });
  private from = 0;
  private to: number;

  constructor(private readonly state: State, private readonly go: (box: number) => void) {
    const { scene } = state;
    this.to = scene.total_us;
    this.svg.setAttribute("aria-label", `The run: ${time(scene.total_us)} in ${scene.bars.filter((bar) => !bar.depth).length} steps`);
    const whole = button("Whole run", "Show the whole run", () => this.zoom(0, scene.total_us), { class: "small" });
    const head = h("div", { class: "flame-head" }, h("strong", {}, `Run: ${time(scene.total_us)}`), h("span", { class: "muted" }, ` on ${scene.run} `), whole, this.says);
    this.element = h("section", { class: "timeline", "aria-label": "Profile" }, head, this.svg);
    new ResizeObserver(() => this.draw()).observe(this.svg);
    state.on("choice", () => this.draw());
  }

  private zoom(from: number, to: number): void {
    [this.from, this.to] = [from, Math.max(to, from + 0.001)];
    this.draw();
  }

  private draw(): void {
    const { scene } = this.state;
    const width = this.svg.getBoundingClientRect().width;
    const scale = width / (this.to - this.from || 1);
    const made: SVGElement[] = [this.bar({ name: scene.title, what: "the whole run", owner: "", start_us: 0, us: scene.total_us, depth: -1, item: -1 }, width, scale)];
    for (const bar of scene.bars) {
      if (bar.us * scale < LEAST || bar.start_us > this.to || bar.start_us + bar.us < this.from) continue;
      made.push(this.bar(bar, width, scale));
    }
    put(this.svg, ...made);
  }

  private bar(bar: Bar, width: number, scale: number): SVGElement {
    const x = Math.max(0, (bar.start_us - this.from) * scale);
    const end = Math.min(width, (bar.start_us + bar.us - this.from) * scale);
    const room = Math.floor((end - x - 8) / 6.2);
    const text = `${bar.what && bar.depth > 0 ? `${bar.what} ` : ""}${bar.name} ${time(bar.us)}`;
    const label = room > 3 ? (text.length > room ? `${text.slice(0, room - 1)}…` : text) : "";
    const { choice } = this.state;
    const chosen = choice && "box" in choice && choice.box === bar.item && bar.item >= 0;
    const act = () => (bar.item >= 0 ? this.go(bar.item) : undefined);
    const classes = ownerColour(this.state.scene, bar.owner);
    const size = { width: Math.max(0.5, end - x - 0.6).toFixed(1), height: ROW - 2, rx: 3 };
    const mark = markOf(classes);
    return s("g", { class: `bar ${classes}${chosen ? " chosen" : ""}`, transform: `translate(${x.toFixed(1)} ${(bar.depth + 1) * ROW})`,
      click: act, dblclick: () => this.zoom(bar.start_us, bar.start_us + bar.us), pointerenter: () => (this.says.textContent = `${text} · ${bar.owner} · ${((100 * bar.us) / (this.state.scene.total_us || 1)).toFixed(1)} %`) },
      s("rect", size), mark ? s("rect", { class: "mark", fill: `url(#m${mark})`, ...size }) : null, s("text", { x: 5, y: 15 }, label), s("title", {}, text));
  }
}
