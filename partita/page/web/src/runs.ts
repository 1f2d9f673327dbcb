// Real calls as they were: a lane for each device or thread, a bar for each step, a thread of each call from step to step.

import type { Lap } from "./data";
import { button, h, put, s } from "./dom";
import { markOf, ownerColour } from "./owners";
import type { State } from "./state";
import { count, time } from "./words";

const ROW = 20;
const GAP = 6;
const LEAST = 0.6; // narrower bars are not drawn

interface Lane { name: string; laps: Lap[]; row: Map<Lap, number>; rows: number }

/** The laps of each lane, those that overlap in rows below one another. */
function lanesOf(laps: Lap[], of: "owner" | "thread"): Lane[] {
  const lanes = new Map<string, { lane: Lane; ends: number[] }>();
  for (const lap of laps) {
    let known = lanes.get(lap[of]);
    if (!known) lanes.set(lap[of], (known = { lane: { name: lap[of], laps: [], row: new Map(), rows: 0 }, ends: [] }));
    const free = known.ends.findIndex((end) => end <= lap.start_us);
    const row = free < 0 ? known.ends.length : free;
    known.ends[row] = lap.start_us + lap.us;
    known.lane.laps.push(lap);
    known.lane.row.set(lap, row);
  }
  return [...lanes.values()].map(({ lane, ends }) => ({ ...lane, rows: ends.length }));
}

export class RealRuns {
  readonly element: HTMLElement;
  private readonly svg = s("svg", { class: "flame runs", role: "img" });
  private readonly says = h("span", { class: "muted", "aria-live": "off" });
  private readonly turn = button("By thread", "A lane for each thread, or for each device", () => this.switch(), { class: "small" });
  private readonly total: number;
  private of: "owner" | "thread" = "owner";
  private from = 0;
  private to: number;

  constructor(private readonly state: State, private readonly go: (box: number) => void) {
    const { laps } = state.scene;
    this.to = this.total = Math.max(...laps.map((lap) => lap.start_us + lap.us));
    const calls = new Set(laps.map((lap) => lap.request)).size;
    const title = `${count(calls, "call")} in ${time(this.total)}`;
    this.svg.setAttribute("aria-label", `Real calls: ${title}, ${count(laps.length, "step")}`);
    const whole = button("All calls", "Show all calls", () => this.zoom(0, this.total), { class: "small" });
    const head = h("div", { class: "flame-head" }, h("strong", {}, `Real calls: ${title}`), this.turn, whole, this.says);
    this.element = h("section", { class: "timeline real", "aria-label": "Real calls" }, head, h("div", { class: "runs-body", tabindex: 0 }, this.svg));
    new ResizeObserver(() => this.draw()).observe(this.element);
    state.on("choice", () => this.draw());
  }

  private switch(): void {
    this.of = this.of === "owner" ? "thread" : "owner";
    this.turn.textContent = this.of === "owner" ? "By thread" : "By device";
    this.draw();
  }

  private zoom(from: number, to: number): void {
    [this.from, this.to] = [from, Math.max(to, from + 0.001)];
    this.draw();
  }

  private draw(): void {
    const width = this.svg.getBoundingClientRect().width;
    const left = width < 600 ? 70 : 130;
    const scale = (width - left - 4) / (this.to - this.from || 1);
    const x = (us: number) => left + Math.min(Math.max(us - this.from, 0), this.to - this.from) * scale;
    const drawn: SVGElement[] = [];
    const middle = new Map<Lap, number>();
    let top = 0;
    for (const lane of lanesOf(this.state.scene.laps, this.of)) {
      const room = Math.floor((left - 8) / 6.2);
      const name = lane.name.length > room ? `${lane.name.slice(0, room - 1)}…` : lane.name;
      drawn.push(s("text", { class: "lane", x: 2, y: top + 14 }, name, s("title", {}, lane.name)));
      for (const lap of lane.laps) {
        const y = top + lane.row.get(lap)! * ROW;
        middle.set(lap, y + (ROW - 2) / 2);
        if (lap.us * scale >= LEAST && lap.start_us < this.to && lap.start_us + lap.us > this.from) drawn.push(this.bar(lap, x, y));
      }
      top += lane.rows * ROW + GAP;
    }
    this.svg.setAttribute("height", String(top));
    put(this.svg, ...this.handovers(x, middle), ...drawn);
  }

  /** A line from each step of a call to the next, where that is on another device or thread. */
  private handovers(x: (us: number) => number, middle: Map<Lap, number>): SVGElement[] {
    const last = new Map<number, Lap>();
    const lines: SVGElement[] = [];
    for (const lap of this.state.scene.laps) {
      const before = last.get(lap.request);
      last.set(lap.request, lap);
      if (!before || (before.owner === lap.owner && before.thread === lap.thread)) continue;
      const [from, to] = [before.start_us + before.us, lap.start_us];
      if (to < this.from || from > this.to) continue;
      lines.push(s("path", { class: "handover", d: `M${x(from).toFixed(1)} ${middle.get(before)}L${x(to).toFixed(1)} ${middle.get(lap)}` }));
    }
    return lines;
  }

  private bar(lap: Lap, x: (us: number) => number, y: number): SVGElement {
    const { scene, choice } = this.state;
    const [begin, end] = [x(lap.start_us), x(lap.start_us + lap.us)];
    const room = Math.floor((end - begin - 8) / 6.2);
    const text = `#${lap.request} ${lap.name} ${time(lap.us)}`;
    const label = room > 2 ? (text.length > room ? `${text.slice(0, room - 1)}…` : text) : "";
    const chosen = choice && "box" in choice && choice.box === lap.item && lap.item >= 0;
    const classes = ownerColour(scene, lap.owner);
    const mark = markOf(classes);
    const size = { width: Math.max(0.5, end - begin - 0.6).toFixed(1), height: ROW - 2, rx: 3 };
    const whole = `${text} · ${lap.owner} · ${lap.thread}${lap.waited_us >= 1 ? ` · waited ${time(lap.waited_us)}` : ""}`;
    return s("g", { class: `bar ${classes}${chosen ? " chosen" : ""}`, transform: `translate(${begin.toFixed(1)} ${y})`,
      click: () => lap.item >= 0 && this.go(lap.item), dblclick: () => this.zoom(lap.start_us, lap.start_us + lap.us), pointerenter: () => (this.says.textContent = whole) },
      s("rect", size), mark ? s("rect", { class: "mark", fill: `url(#m${mark})`, ...size }) : null, s("text", { x: 4, y: 13 }, label), s("title", {}, whole));
  }
}
