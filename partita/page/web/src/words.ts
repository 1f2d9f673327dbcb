// Numbers as people read them.

export function bytes(count: number): string {
  let size = count;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024 || unit === "GiB") return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return "";
}

export function time(us: number): string {
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  if (us >= 1e3) return `${(us / 1e3).toFixed(us < 1e4 ? 2 : 1)} ms`;
  return `${us.toFixed(us < 10 ? 1 : 0)} µs`;
}

export function count(n: number, what: string): string {
  return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
}

/** The text, its middle left out if it is longer than that. */
export function cut(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const tail = Math.floor((longest - 1) * 0.6);
  return `${text.slice(0, longest - 1 - tail)}…${text.slice(-tail)}`;
}
