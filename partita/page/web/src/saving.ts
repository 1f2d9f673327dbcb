// What is in view as a file: SVG that needs no styles from outside, or PNG.

import { h, s } from "./dom";

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order", "font-size", "font-weight", "font-family", "text-anchor", "display", "transform"];
const COLOURED = new Set(["fill", "stroke"]);
const SHARPNESS = 2; // pixels of a PNG for one of the screen

export function saveSvg(picture: SVGSVGElement, name: string): void {
  save(new Blob([standalone(picture)], { type: "image/svg+xml" }), `${plain(name)}.svg`);
}

export async function savePng(picture: SVGSVGElement, name: string): Promise<void> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(picture))}`;
  await image.decode();
  const { width, height } = picture.getBoundingClientRect();
  const canvas = h("canvas", { width: Math.round(SHARPNESS * width), height: Math.round(SHARPNESS * height) });
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && save(blob, `${plain(name)}.png`), "image/png");
}

/** The picture with every style written where it counts. */
function standalone(picture: SVGSVGElement): string {
  const { width, height } = picture.getBoundingClientRect();
  const copy = picture.cloneNode(true) as SVGSVGElement;
  const rgb = colours();
  const arrows = new Map<string, string>();
  const originals = [picture, ...picture.querySelectorAll("*")];
  const copies = [copy, ...copy.querySelectorAll("*")];
  copies.forEach((element, i) => {
    if (element instanceof SVGTitleElement || element instanceof SVGDefsElement) return;
    const style = getComputedStyle(originals[i]);
    for (const key of KEPT) {
      const value = style.getPropertyValue(key);
      if (key === "transform" ? value !== "none" && originals[i].matches(".title") : value !== "") element.setAttribute(key, COLOURED.has(key) ? rgb(value) : value);
    }
    if (element.hasAttribute("marker-end")) element.setAttribute("marker-end", `url(#${arrow(arrows, rgb(style.stroke))})`);
  });
  const marker = copy.querySelector("marker")!;
  for (const [stroke, id] of arrows) {
    const own = marker.cloneNode(true) as SVGMarkerElement;
    own.id = id;
    own.querySelector("path")!.setAttribute("fill", stroke);
    marker.parentNode!.append(own);
  }
  marker.remove();
  for (const element of copies) for (const name of ["class", "role", "tabindex", "aria-label", "data-box", "data-from", "data-to"]) element.removeAttribute(name);
  for (const element of copy.querySelectorAll("[display=none]")) element.remove();
  for (const [key, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` })) copy.setAttribute(key, String(value));
  copy.prepend(s("rect", { width, height, fill: rgb(getComputedStyle(document.body).backgroundColor) }));
  return new XMLSerializer().serializeToString(copy);
}

function arrow(arrows: Map<string, string>, stroke: string): string {
  if (!arrows.has(stroke)) arrows.set(stroke, `arrow${arrows.size}`);
  return arrows.get(stroke)!;
}

/** Colours as every program reads them: browsers say oklch(…) of those that were written so. */
function colours(): (colour: string) => string {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })!;
  const known = new Map<string, string>();
  return (colour) => {
    if (!/^[a-z]+\(/.test(colour) || colour.startsWith("url(") || colour.startsWith("rgb(")) return colour;
    if (!known.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(colour, a === 255 ? `rgb(${r}, ${g}, ${b})` : `rgba(${r}, ${g}, ${b}, ${(a / 255).toFixed(3)})`);
    }
    return known.get(colour)!;
  };
}

function plain(name: string): string {
  return name.replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 80) || "graph";
}

function save(blob: Blob, name: string): void {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
