// Where one looks: drag, wheel, pinch; and the frames in which it moves.

export interface View { x: number; y: number; scale: number }

const LEAST = 0.02;
const MOST = 3;

export class Camera {
  view: View = { x: 0, y: 0, scale: 1 };
  private frame = 0;
  private readonly fingers = new Map<number, { x: number; y: number }>();
  private moved = 0;
  private flight = 0;

  constructor(private readonly surface: SVGSVGElement, private readonly draw: () => void, click: (x: number, y: number, twice: boolean) => void) {
    surface.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    surface.addEventListener("pointerdown", (event) => this.down(event));
    surface.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"] as const) surface.addEventListener(end, (event) => this.fingers.delete(event.pointerId));
    surface.addEventListener("click", (event) => this.moved < 6 && click(...this.local(event), event.detail === 2));
  }

  get size(): { width: number; height: number } {
    const { width, height } = this.surface.getBoundingClientRect();
    return { width, height };
  }

  /** From the screen to the picture. */
  world(x: number, y: number): { x: number; y: number } {
    const { view } = this;
    return { x: (x - view.x) / view.scale, y: (y - view.y) / view.scale };
  }

  /** Show at this scale, with the point of the picture in the middle (or at `fromTop` pixels). */
  lookAt(x: number, y: number, scale: number, fromTop?: number): void {
    const { width, height } = this.size;
    this.set({ x: width / 2 - x * scale, y: (fromTop ?? height / 2) - y * scale, scale });
  }

  set(view: View): void {
    cancelAnimationFrame(this.flight);
    this.view = { ...view, scale: Math.min(MOST, Math.max(LEAST, view.scale)) };
    this.request();
  }

  /** Go there smoothly, unless the reader wants no motion. */
  fly(x: number, y: number, scale = this.view.scale): void {
    const { width, height } = this.size;
    const target = { x: width / 2 - x * scale, y: height / 2 - y * scale, scale };
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.set(target);
    const from = { ...this.view };
    const begun = performance.now();
    const step = (now: number) => {
      const t = Math.min(1, (now - begun) / 220);
      const ease = 1 - (1 - t) ** 3;
      this.set({ x: from.x + (target.x - from.x) * ease, y: from.y + (target.y - from.y) * ease, scale: from.scale + (target.scale - from.scale) * ease });
      if (t < 1) this.flight = requestAnimationFrame(step);
    };
    this.flight = requestAnimationFrame(step);
  }

  pan(dx: number, dy: number): void {
    this.set({ ...this.view, x: this.view.x + dx, y: this.view.y + dy });
  }

  zoom(factor: number, x = this.size.width / 2, y = this.size.height / 2): void {
    const before = this.view.scale;
    const scale = Math.min(MOST, Math.max(LEAST, before * factor));
    this.set({ x: x - ((x - this.view.x) * scale) / before, y: y - ((y - this.view.y) * scale) / before, scale });
  }

  request(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /** Draw now, not in the next frame. */
  flush(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.draw();
  }

  private local(event: MouseEvent): [number, number] {
    const { left, top } = this.surface.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey || !event.shiftKey) this.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0015)), ...this.local(event));
    else this.pan(-(event.deltaX + event.deltaY) * unit, 0);
  }

  private down(event: PointerEvent): void {
    if (!this.fingers.size) this.moved = 0;
    this.fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  private move(event: PointerEvent): void {
    const before = this.fingers.get(event.pointerId);
    if (!before) return;
    if (event.pointerType === "mouse" && !event.buttons) return void this.fingers.delete(event.pointerId);
    const [dx, dy] = [event.clientX - before.x, event.clientY - before.y];
    this.moved += Math.abs(dx) + Math.abs(dy);
    if (this.moved >= 6) this.surface.setPointerCapture(event.pointerId);
    const other = [...this.fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const distance = (p: { x: number; y: number }) => Math.hypot(p.x - other.x, p.y - other.y) || 1;
      const now = { x: event.clientX, y: event.clientY };
      const { left, top } = this.surface.getBoundingClientRect();
      this.pan(dx / 2, dy / 2);
      this.zoom(distance(now) / distance(before), (now.x + other.x) / 2 - left, (now.y + other.y) / 2 - top);
    } else this.pan(dx, dy);
    this.fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }
}
