// The drawing: only what is in view, and from afar only colours.

import { Camera } from "./camera";
import type { Item } from "./data";
import { s } from "./dom";
import type { Drawn, Placed } from "./layout";
import { colour, markOf, patterns } from "./owners";
import { distance, path, rough } from "./paths";
import { holder, lines, spoken } from "./shapes";
import type { State } from "./state";

const FAR = 0.3; // below this scale nobody can read
const REACH = 9; // pixels beside a line that still count as a click on it
const LEGIBLE = 0.85; // from this scale on text can be read at once
const BED = 68; // the length of a whole bar, the same in all boxes
const WORTH_A_TITLE = 90; // pixels: narrower open boxes bear none from afar
const ENDLESS = 5000; // longer lines are not dashed: every dash is drawn, seen or not
const GRIP = 26; // the corner of a box that opens and closes it

export class View {
  readonly svg: SVGSVGElement;
  readonly camera: Camera;
  private readonly world = s("g");
  private readonly frames = s("g");
  private readonly wires = s("g");
  private readonly boxes = s("g");
  private readonly titles = s("g");
  private readonly far = s("g", { class: "far" });
  private readonly shown = new Map<string, SVGElement>();
  private readonly extents: [Drawn, number, number, number, number][] = [];
  private isFar = false;

  constructor(private readonly state: State, private readonly borders: (line: Drawn) => boolean) {
    const label = "Graph. Arrow keys go from box to box, Enter opens and closes one, ? lists all keys.";
    this.svg = s("svg", { class: "picture", role: "application", tabindex: 0, "aria-label": label });
    const arrow = s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
      s("path", { d: "M0 0.8L8 4L0 7.2z" }));
    this.svg.append(s("defs", {}, arrow, ...patterns()), this.world);
    this.world.append(this.far, this.frames, this.wires, this.boxes, this.titles);
    this.camera = new Camera(this.svg, () => this.draw(), (x, y, twice) => this.click(x, y, twice));
    state.on("picture", () => {
      this.measure();
      this.drawFar();
      this.renew();
    });
    state.on("choice", () => this.renew());
    state.on("heat", () => this.renew());
    new ResizeObserver(() => this.camera.request()).observe(this.svg);
  }

  placed(box: number): Placed | undefined {
    return this.state.picture.boxes.find((placed) => placed.box === box);
  }

  /** All in view. */
  fit(): void {
    const { picture } = this.state;
    this.camera.lookAt(picture.width / 2, picture.height / 2, Math.min(1.1, this.whole()));
  }

  /** All in view; if that would be too small to read, the top at a scale that is not. */
  begin(): void {
    const { width } = this.camera.size;
    const { picture } = this.state;
    if (this.whole() >= LEGIBLE) return this.fit();
    const scale = Math.max(LEGIBLE, Math.min(1, (width - 32) / picture.width));
    const first = this.first();
    const x = picture.width * scale < width ? picture.width / 2 : Math.max(first.x + first.width / 2, (width / 2 - 16) / scale);
    this.camera.lookAt(x, 0, scale, 24);
  }

  /** The closed box that holds the first op. */
  private first(): Placed {
    const { boxes } = this.state.picture;
    const { items } = this.state.scene;
    const op = items.findIndex(({ kind }) => kind === "op");
    const seen = op < 0 ? -1 : this.state.tree.seen(op, this.state.open);
    return boxes.find(({ box }) => box === seen) ?? boxes[0];
  }

  /** The scale at which all is in view. */
  private whole(): number {
    const { width, height } = this.camera.size;
    const { picture } = this.state;
    return Math.min((width - 48) / picture.width, (height - 48) / picture.height);
  }

  /** Bring a box into the middle, large enough to read. */
  goTo(box: number): void {
    const placed = this.placed(this.state.tree.seen(box, this.state.open));
    if (!placed) return;
    const { width, height } = this.camera.size;
    const readable = Math.max(this.camera.view.scale, 0.75);
    const scale = placed.open ? Math.min(readable, Math.max(0.1, Math.min(width / (placed.width + 60), height / (placed.height + 60)))) : readable;
    this.camera.fly(placed.x + placed.width / 2, placed.y + placed.height / 2, scale);
  }

  /** Change the picture while this box stays where it is on the screen. */
  async keeping(box: number, change: () => Promise<void>): Promise<void> {
    const before = this.placed(box);
    const { view } = this.camera;
    const [x, y] = before ? [before.x * view.scale + view.x, before.y * view.scale + view.y] : [0, 0];
    await change();
    const after = this.placed(this.state.tree.seen(box, this.state.open));
    if (before && after) this.camera.set({ scale: view.scale, x: x - after.x * view.scale, y: y - after.y * view.scale });
  }

  toggle(box: number): Promise<void> {
    return this.keeping(box, () => this.state.toggle(box));
  }

  private click(x: number, y: number, twice: boolean): void {
    const point = this.camera.world(x, y);
    const hit = this.boxAt(point.x, point.y);
    if (hit && !hit.open) return this.clickBox(hit, point.x, twice);
    const line = this.lineAt(point.x, point.y);
    if (line) return this.state.choose({ from: line.from, to: line.to });
    if (hit) this.clickBox(hit, point.y - hit.y < 32 ? point.x : Infinity, twice);
    else this.state.choose(null);
  }

  private clickBox(hit: Placed, x: number, twice: boolean): void {
    const onGrip = this.state.tree.holds(hit.box) && x - hit.x < GRIP && this.camera.view.scale >= FAR;
    if (twice || onGrip) void this.toggle(hit.box);
    else this.state.choose({ box: hit.box });
  }

  private boxAt(x: number, y: number): Placed | undefined {
    let found: Placed | undefined;
    for (const placed of this.state.picture.boxes) {
      const inside = x >= placed.x && x <= placed.x + placed.width && y >= placed.y && y <= placed.y + placed.height;
      if (inside && (!found || placed.depth > found.depth)) found = placed;
    }
    return found;
  }

  private lineAt(x: number, y: number): Drawn | undefined {
    const reach = REACH / this.camera.view.scale;
    let least = reach;
    let found: Drawn | undefined;
    for (const [line, left, top, right, bottom] of this.extents) {
      if (x < left - reach || x > right + reach || y < top - reach || y > bottom + reach) continue;
      const away = distance(line.points, x, y);
      if (away < least) [least, found] = [away, line];
    }
    return found;
  }

  /** The rectangle around each line. */
  private measure(): void {
    this.extents.length = 0;
    for (const line of this.state.picture.lines) {
      let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
      for (const { x, y } of line.points) {
        left = Math.min(left, x);
        top = Math.min(top, y);
        right = Math.max(right, x);
        bottom = Math.max(bottom, y);
      }
      this.extents.push([line, left, top, right, bottom]);
    }
  }

  /** Everything in view anew, at once: nobody ever finds the picture empty. */
  private renew(): void {
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.camera.flush();
  }

  /** Everything at once as from afar: a path for each colour, lines without their curves. */
  private drawFar(): void {
    const { picture, scene } = this.state;
    const paths = new Map<string, string>();
    for (const placed of picture.boxes) {
      const [x, y, width, height] = [placed.x, placed.y, placed.width, placed.height].map(Math.round);
      const key = `${placed.open ? "frame" : "box"} ${colour(scene, scene.items[placed.box])}`;
      paths.set(key, `${paths.get(key) ?? ""}M${x} ${y}h${width}v${height}h-${width}z`);
    }
    let [wires, walls] = ["", ""];
    for (const line of picture.lines) {
      const way = rough(line.points);
      wires += way;
      if (this.borders(line)) walls += way;
    }
    const order = [...paths].sort(([a], [b]) => Number(b.startsWith("frame")) - Number(a.startsWith("frame")));
    const drawn = order.map(([key, d]) => s("path", { class: key, d }));
    const marked = order.flatMap(([key, d]) => (key.startsWith("box") && markOf(key) ? [s("path", { class: "mark", fill: `url(#m${markOf(key)})`, d })] : []));
    const split = order.filter(([key]) => key.startsWith("frame")).length;
    this.far.replaceChildren(...drawn.slice(0, split), s("path", { class: "wire", d: wires }), s("path", { class: "wire border", d: walls }), ...drawn.slice(split), ...marked);
  }

  private draw(): void {
    const { x, y, scale } = this.camera.view;
    this.world.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${scale.toFixed(4)})`);
    this.isFar = scale < FAR;
    this.svg.style.setProperty("--scale", scale.toFixed(4));
    this.svg.classList.toggle("is-far", this.isFar);
    const { width, height } = this.camera.size;
    const [from, to] = [this.camera.world(-40, -40), this.camera.world(width + 40, height + 40)];
    const wanted = new Set<string>();
    const chosen = this.state.choice && "box" in this.state.choice ? this.state.choice.box : -1;
    for (const placed of this.state.picture.boxes) {
      if (this.isFar && placed.box !== chosen && !(placed.open && placed.width * scale > WORTH_A_TITLE)) continue;
      if (placed.x > to.x || placed.y > to.y || placed.x + placed.width < from.x || placed.y + placed.height < from.y) continue;
      const key = `b${placed.box}`;
      wanted.add(key).add(`t${placed.box}`);
      if (this.shown.has(key)) continue;
      this.show(key, this.makeBox(placed, placed.box === chosen), placed.open ? this.frames : this.boxes);
      if (placed.open) this.show(`t${placed.box}`, this.makeTitle(placed), this.titles);
    }
    for (const [line, left, top, right, bottom] of this.extents) {
      const lit = this.isLit(line);
      if (this.isFar && !lit) continue;
      if (left > to.x || top > to.y || right < from.x || bottom < from.y) continue;
      const key = `${line.from},${line.to}`;
      wanted.add(key);
      if (!this.shown.has(key)) this.show(key, this.makeLine(line, lit, right - left + bottom - top > ENDLESS), this.wires);
    }
    for (const [key, element] of this.shown) {
      if (wanted.has(key)) continue;
      element.remove();
      this.shown.delete(key);
    }
  }

  private show(key: string, element: SVGElement, layer: SVGElement): void {
    this.shown.set(key, element);
    layer.append(element);
  }

  private isLit(line: Drawn): boolean {
    const { choice } = this.state;
    if (!choice) return false;
    return "box" in choice ? line.from === choice.box || line.to === choice.box : line.from === choice.from && line.to === choice.to;
  }

  private makeLine(line: Drawn, lit: boolean, endless: boolean): SVGElement {
    const kind = `wire${this.borders(line) ? " border" : ""}${lit ? " lit" : ""}${endless ? " endless" : ""}`;
    return s("path", { class: kind, d: path(line.points), "marker-end": "url(#arrow)", "data-from": line.from, "data-to": line.to });
  }

  private makeBox(placed: Placed, chosen: boolean): SVGElement {
    const item = this.state.scene.items[placed.box];
    const kind = `${placed.open ? "frame" : "box"} ${item.kind} ${colour(this.state.scene, item)}${chosen ? " chosen" : ""}`;
    const group = s("g", { class: kind, "data-box": placed.box, transform: `translate(${placed.x.toFixed(1)} ${placed.y.toFixed(1)})` });
    const { width, height } = placed;
    if (!placed.open && holder(item)) group.append(s("rect", { class: "behind", x: 4, y: 4, width, height, rx: 8 }));
    const rx = item.kind === "input" || item.kind === "output" ? height / 2 : 8;
    group.append(s("rect", { class: "face", width, height, rx: placed.open ? 12 : rx }));
    const mark = markOf(kind);
    if (mark) group.append(s("rect", { class: "mark", width, height: placed.open ? 30 : height, rx: placed.open ? 12 : rx, fill: `url(#m${mark})` }));
    if (!placed.open) this.fillBox(group, item, placed, width, height);
    if (this.state.changes.has(placed.box)) group.append(s("circle", { class: "changed", cx: width - 9, cy: 9, r: 4.5 }));
    return group;
  }

  /** An open box's title, above the lines that come in there. */
  private makeTitle({ box, x, y, width }: Placed): SVGElement {
    const item = this.state.scene.items[box];
    const room = Math.floor((width - 34) / 6.4);
    const text = lines(item, this.state.heat).join(" · ");
    const group = s("g", { class: `head ${colour(this.state.scene, item)}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
    group.append(s("path", { class: "grip", d: "M10 11h10l-5 7z" }), s("text", { class: "title", x: 26, y: 19 }, text.length > room ? `${text.slice(0, room - 1)}…` : text));
    return group;
  }

  private fillBox(group: SVGElement, item: Item, { box }: Placed, width: number, height: number): void {
    const holds = this.state.tree.holds(box);
    const middle = width / 2 + (holds ? 7 : 0);
    const [first, second] = lines(item, this.state.heat);
    const bare = item.kind === "input" || item.kind === "output";
    if (holds) group.append(s("path", { class: "grip", d: `M10 ${height / 2 - 5}v10l7 -5z` }));
    if (bare) group.append(s("text", { class: "name", x: middle, y: height / 2 + 4 }, second));
    else {
      group.append(s("text", { class: "what", x: middle, y: 18 }, first), s("text", { class: "name", x: middle, y: 31 }, second));
      if (this.state.heat && item.us >= 0) this.addHeat(group, item, height);
      else if (item.kind === "section") this.addShares(group, box, width, height);
    }
    group.append(s("title", {}, spoken(item)));
  }

  /** The colours of the ops inside, each as wide as it has ops. */
  private addShares(group: SVGElement, box: number, width: number, height: number): void {
    const shares = [...this.state.shares(box)];
    const all = shares.reduce((sum, [, count]) => sum + count, 0);
    let x = 10;
    for (const [name, count] of shares) {
      const wide = ((width - 20) * count) / all;
      group.append(s("rect", { class: `share ${name}`, x, y: height - 7, width: wide, height: 4 }));
      x += wide;
    }
  }

  /** Its time as a bar at the foot, on one scale with all others. */
  private addHeat(group: SVGElement, item: Item, height: number): void {
    const length = (BED * item.us) / (this.state.mostUs || 1);
    group.append(s("rect", { class: "heat-bed", x: 8, y: height - 6, width: BED, height: 3, rx: 1.5 }),
      s("rect", { class: "heat", x: 8, y: height - 6, width: Math.max(1, length), height: 3, rx: Math.min(1.5, length / 2) }));
  }
}
