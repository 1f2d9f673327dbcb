// Layout on a thread of its own: the page stays quick however long it takes.

import { Layouter, type Job, type Picture } from "./layout";

interface Question { number: number; opened: number[]; aspect: number }

/** What the program does where it finds itself in a worker. */
export function serve(): void {
  let layouter: Layouter;
  self.onmessage = ({ data }: MessageEvent<Job | Question>) => {
    if ("parents" in data) layouter = new Layouter(data);
    else (self as any).postMessage({ number: data.number, picture: layouter.picture(data.opened, data.aspect) });
  };
}

/** Asks a worker, or does it itself where there can be none. Only the answer to the last question counts. */
export class LayoutService {
  private readonly worker: Worker | null;
  private readonly here: Layouter | null;
  private number = 0;
  private waiting: ((picture: Picture) => void) | null = null;

  constructor(job: Job) {
    this.worker = start();
    this.here = this.worker ? null : new Layouter(job);
    if (!this.worker) return;
    this.worker.postMessage(job);
    this.worker.onmessage = ({ data }) => {
      if (data.number === this.number) this.waiting?.(data.picture);
    };
  }

  ask(opened: number[], aspect: number): Promise<Picture> {
    const number = ++this.number;
    return new Promise((done) => {
      if (this.here) return done(this.here.picture(opened, aspect));
      this.waiting = done;
      this.worker!.postMessage({ number, opened, aspect } satisfies Question);
    });
  }
}

function start(): Worker | null {
  const program = document.getElementById("program")?.textContent;
  if (!program) return null;
  try {
    return new Worker(URL.createObjectURL(new Blob([program], { type: "text/javascript" })));
  } catch {
    return null;
  }
}
