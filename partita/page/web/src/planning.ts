// A placement by cost, planned again with devices chosen by hand: exactly on two devices, on more by expansion moves.

export interface Tensor { name: string; producer: number; readers: number[]; over: number[][] } // a producer of -1: the host
export interface Costs { devices: string[]; items: number[]; times: (number | null)[][]; tensors: Tensor[]; unit: string; notes: string[] }
export interface Crossing { name: string; source: string; destination: string; us: number }

interface Charge { producer: number; costs: number[]; readers: number[]; value: number } // due if any reader has the value

const SWEEPS = 20;

/** The hand-overs of an assignment, the most expensive ones first. */
export function crossings({ devices, tensors }: Costs, chosen: number[]): Crossing[] {
  return tensors.flatMap(({ name, producer, readers, over }) => {
    const row = over[producer < 0 ? 0 : chosen[producer]];
    return [...new Set(readers.map((reader) => chosen[reader]))].filter((device) => row[device]).map((device) => (
      { name, source: producer < 0 ? "host" : devices[chosen[producer]], destination: devices[device], us: row[device] }));
  }).sort((a, b) => b.us - a.us);
}

/** The sum of times and hand-overs. */
export function predicted(costs: Costs, chosen: number[], times = finite(costs)): number {
  return chosen.reduce((sum, device, op) => sum + times[op][device], 0) + crossings(costs, chosen).reduce((sum, one) => sum + one.us, 0);
}

/** The device of each op in the cheapest placement in which these ops have these devices. */
export function planned(costs: Costs, pinned: Map<number, number>): number[] {
  const times = finite(costs).map((row, op) => (pinned.has(op) ? row.map((us, device) => (device === pinned.get(op) ? us : Infinity)) : row));
  // On two devices a single move from the first one to the second one is a minimum cut of everything.
  if (costs.devices.length === 2) return moved(costs, times, times.map(() => 0), 1);
  let chosen = times.map((row) => row.indexOf(Math.min(...row)));
  let least = predicted(costs, chosen, times);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const before = least;
    for (const device of costs.devices.keys()) {
      const next = moved(costs, times, chosen, device);
      const sum = predicted(costs, next, times);
      if (sum < least) [chosen, least] = [next, sum];
    }
    if (least === before) break;
  }
  return chosen;
}

const finite = ({ times }: Costs): number[][] => times.map((row) => row.map((us) => us ?? Infinity));

/** The best assignment in which each op keeps its device or changes to this one. */
function moved({ tensors }: Costs, times: number[][], chosen: number[], device: number): number[] {
  const unary = times.map((row, op) => [row[chosen[op]], row[device]]);
  const charges: Charge[] = [];
  for (const { producer, readers, over } of tensors) {
    over.forEach((_, value) => {
      const costs = producer < 0 ? [over[0][value]] : [over[chosen[producer]][value], over[device][value]];
      if (value !== device) {
        const there = readers.filter((reader) => chosen[reader] === value);
        if (there.length && costs.some(Boolean)) charges.push({ producer, costs, readers: there, value: 0 });
      } else if (readers.some((reader) => chosen[reader] === device)) {
        if (producer >= 0) costs.forEach((us, side) => { unary[producer][side] += us; });
      } else if (costs.some(Boolean)) {
        charges.push({ producer, costs, readers: readers.filter((reader) => times[reader][device] < Infinity), value: 1 });
      }
    });
  }
  return minimumCut(unary, charges).map((isFirst, op) => (isFirst ? chosen[op] : device));
}

/** For each op with costs of two values, true if it has the first one in the minimum of the costs and charges. */
function minimumCut(unary: number[][], charges: Charge[]): boolean[] {
  const network = new Network();
  const nodes = unary.map(([first, second]) => {
    const node = network.node();
    network.arc(node, 1, first);
    network.arc(0, node, second);
    return node;
  });
  for (const { producer, costs, readers, value } of charges) {
    const due = network.node();
    const same = producer >= 0 ? costs[value] : costs[0];
    const more = producer >= 0 ? costs[1 - value] - same : 0;
    const both = more >= 0 ? same : Math.max(...costs);
    const arc = (a: number, b: number, us: number) => (value === 0 ? network.arc(a, b, us) : network.arc(b, a, us));
    arc(due, value === 0 ? 1 : 0, both);
    if (producer >= 0 && more > 0) arc(due, nodes[producer], more);
    for (const reader of readers) arc(nodes[reader], due, Infinity);
  }
  const sides = network.sides();
  return nodes.map((node) => sides[node] >= 0);
}

/** A flow network of nodes 0 (the source), 1 (the sink) and others; its maximum flow is found by Dinic's algorithm. */
class Network {
  private readonly heads: number[][] = [[], []];
  private readonly to: number[] = [];
  private readonly left: number[] = [];

  node(): number {
    return this.heads.push([]) - 1;
  }

  arc(start: number, end: number, capacity: number): void {
    if (!capacity) return;
    this.heads[start].push(this.to.length);
    this.heads[end].push(this.to.length + 1);
    this.to.push(end, start);
    this.left.push(capacity, 0);
  }

  /** The distance of each node from the source once the flow is maximal; -1 on the sink's side. */
  sides(): number[] {
    for (;;) {
      const levels = this.levels();
      if (levels[1] < 0 || !this.push(levels)) return levels;
    }
  }

  private levels(): number[] {
    const levels = this.heads.map(() => -1);
    levels[0] = 0;
    const reached = [0];
    for (const node of reached) {
      for (const arc of this.heads[node]) {
        const end = this.to[arc];
        if (this.left[arc] > 0 && levels[end] < 0) {
          levels[end] = levels[node] + 1;
          reached.push(end);
        }
      }
    }
    return levels;
  }

  /** Saturate all shortest paths; false if one has no limit. */
  private push(levels: number[]): boolean {
    const following = this.heads.map(() => 0);
    const path: number[] = [];
    for (let node = 0; ;) {
      if (node === 1) {
        const flow = Math.min(...path.map((arc) => this.left[arc]));
        if (flow === Infinity) return false;
        for (const arc of path) {
          this.left[arc] -= flow;
          this.left[arc ^ 1] += flow;
        }
        const first = path.findIndex((arc) => !this.left[arc]);
        node = this.to[path[first] ^ 1];
        path.length = first;
        continue;
      }
      const arcs = this.heads[node];
      while (following[node] < arcs.length && !(this.left[arcs[following[node]]] > 0 && levels[this.to[arcs[following[node]]]] === levels[node] + 1)) following[node]++;
      if (following[node] < arcs.length) {
        path.push(arcs[following[node]]);
        node = this.to[arcs[following[node]]];
      } else if (path.length) {
        node = this.to[path.pop()! ^ 1];
        following[node]++;
      } else return true;
    }
  }
}
