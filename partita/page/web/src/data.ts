// The scene as Python wrote it: a list for each field, texts as numbers.

import type { Costs } from "./planning";

export interface Item {
  kind: string; name: string; label: string; parent: number; owner: string; details: string[]; us: number; is_open: boolean;
}
export interface Value { source: number; name: string; type: string; nbytes: number }
export interface Wall { producer: number; consumer: number; inside: string; rule: string; text: string }
export interface Refusal { what: string; rule: string; text: string; items: number[] }
export interface Transfer { source: string; target: string; values: number; nbytes: number; unknown: number }
export interface Subgraph { item: number; ops: number; seconds: number }
export interface Bar { name: string; what: string; owner: string; start_us: number; us: number; depth: number; item: number }
export interface Lap { request: number; name: string; owner: string; thread: string; start_us: number; us: number; waited_us: number; item: number }
export interface Seen { item: number; name: string; owner: string; calls: number; nans: number; infinities: number; first: number; low: string; high: string; checksum: string }
export interface Probe { item: number; name: string; owner: string; call: number; text: string; is_ok: boolean }
export interface Change { item: number; what: string; name: string; text: string }

export interface Scene {
  title: string; subtitle: string; owned_by: string; owners: string[]; facts: [string, string][]; notes: string[];
  items: Item[]; values: Value[]; edges: [value: number, reader: number][];
  walls: Wall[]; refusals: Refusal[]; transfers: Transfer[]; subgraphs: Subgraph[]; bars: Bar[];
  laps: Lap[]; recorded: string; seen: Seen[]; probes: Probe[];
  run: string; total_us: number;
  before: string; changes: Change[]; compared: [what: string, before: string, now: string][]; costs: Costs | null;
}

type Columns = Record<string, any[]>;

function records<T>(columns: Columns, texts: string[], named: string[], listed: string[] = []): T[] {
  const fields = Object.keys(columns);
  return columns[fields[0]].map((_, i) => {
    const row: any = {};
    for (const field of fields) {
      const value = columns[field][i];
      if (named.includes(field)) row[field] = texts[value];
      else row[field] = listed.includes(field) ? value.map((n: number) => texts[n]) : value;
    }
    return row as T;
  });
}

export function read(json: string): Scene {
  const raw = JSON.parse(json);
  const texts: string[] = raw.texts;
  return {
    ...raw,
    items: records(raw.items, texts, ["kind", "name", "label", "owner"], ["details"]),
    values: records(raw.values, texts, ["name", "type"]),
    edges: raw.edges[0].map((value: number, i: number) => [value, raw.edges[1][i]]),
    walls: records(raw.walls, texts, ["inside", "rule", "text"]),
    refusals: records(raw.refusals, texts, ["what", "rule", "text"]),
    transfers: records(raw.transfers, texts, ["source", "target"]),
    subgraphs: records(raw.subgraphs, texts, []),
    bars: records(raw.bars, texts, ["name", "what", "owner"]),
    laps: records(raw.laps, texts, ["name", "owner", "thread"]),
    seen: records(raw.seen, texts, ["name", "owner", "low", "high", "checksum"]),
    probes: records(raw.probes, texts, ["name", "owner", "text"]),
    changes: records(raw.changes, texts, ["what", "name", "text"]),
  };
}
