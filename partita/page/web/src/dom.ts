// Elements without markup: whatever text comes in is shown as text.

type Child = Node | string | number | null | undefined;
type Props = Record<string, string | number | boolean | ((event: any) => void) | undefined>;

const SVG = "http://www.w3.org/2000/svg";

function fill<E extends Element>(element: E, props: Props, children: Child[]): E {
  for (const [key, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(key, value as EventListener);
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child instanceof Node ? child : String(child));
  return element;
}

/** An HTML element; functions among the props are listeners. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, tag) as SVGElementTagNameMap[K], props, children);
}

/** Put these in place of what is there. */
export function put(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  fill(parent, {}, children);
}

/** A button: its text is its name, and the title describes it. */
export function button(text: string, title: string, act: () => void, props: Props = {}): HTMLButtonElement {
  return h("button", { type: "button", title, click: act, ...props }, text);
}
