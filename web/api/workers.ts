/**
 * Programs in workers: calls do not hold up the page, and as many run at once as there are workers.
 *
 *     import { loadInWorkers } from "torchlet/workers";
 *     const pool = await loadInWorkers(await (await fetch("digits.pte")).arrayBuffer(), { workers: 4 });
 *     const results = await Promise.all(images.map((image) => pool.forward(image)));
 *     pool.dispose();
 *
 * Each worker has the program for itself, with memory of its own, so this makes many calls faster, and not one call. It needs no isolated page.
 * Calls go to whichever worker is free: what a program keeps from call to call is kept in one of them. In Node, workers keep the process going
 * until they are disposed of.
 */

import { bytesOf, compile, TorchletError, TrapError, type Input, type LoadOptions, type Output, type ProgramInfo } from "./index.js";

/** How programs are loaded in workers. */
export interface WorkersOptions extends LoadOptions {
  /** How many. If not given: as many as the machine has processors, or 2 where the engine does not say that. */
  readonly workers?: number;
}

/** What a worker is asked; it answers with an {@link Answer} of the same number. @internal */
export type Request =
  | { readonly id: number; readonly load: Opening }
  | { readonly id: number; readonly method: string; readonly inputs: readonly Input[] };

/** A program as a worker gets it. @internal */
export interface Opening {
  readonly module: WebAssembly.Module;
  readonly bytes: BufferSource;
  readonly options: Omit<LoadOptions, "module" | "relaxed">;
}

/** @internal */
export type Answer =
  | { readonly id: number; readonly value: ProgramInfo | Output[] }
  | { readonly id: number; readonly error: string; readonly trap: boolean };

/** What workers of browsers and of Node have in common. */
interface Port {
  post(request: Request): void;
  end(): void;
}

interface Job {
  readonly request: Request;
  readonly done: (value: ProgramInfo | Output[]) => void;
  readonly failed: (error: TorchletError) => void;
}

/** A worker, and what it computes now. */
interface Member {
  port: Port;
  job: Job | undefined;
  /** Whether its program ended in a trap, and has to be loaded again. */
  gone: boolean;
}

/** Loads a program in workers. */
export async function loadInWorkers(bytes: BufferSource, options: WorkersOptions = {}): Promise<Workers> {
  const { workers = (globalThis.navigator as Navigator | undefined)?.hardwareConcurrency ?? 2, module: _, relaxed: __, ...rest } = options;
  if (!Number.isInteger(workers) || workers < 1) throw new TorchletError(`there cannot be ${workers} workers`);
  // A copy: after a trap, a worker loads the program again, even if the caller has changed the
  // buffer.
  const own = bytesOf(bytes).slice();
  const pool = new Workers({ module: await compile(options), bytes: own, options: rest });
  try {
    await pool.start(workers);
  } catch (error) {
    pool.dispose();
    throw error;
  }
  return pool;
}

/** A program in several workers. */
export class Workers {
  #opening: Opening;
  #members: Member[] = [];
  #waiting: Job[] = [];
  #next = 0;
  #info: ProgramInfo | undefined;
  #ended: string | undefined;

  /** @internal Use {@link loadInWorkers}. */
  constructor(opening: Opening) {
    this.#opening = opening;
  }

  /** @internal */
  async start(count: number): Promise<void> {
    const infos = Array.from({ length: count }, async () => {
      const member: Member = { port: undefined as unknown as Port, job: undefined, gone: false };
      member.port = await begin((answer) => this.#answered(member, answer), (why) => this.#lost(why));
      if (this.#ended !== undefined) {
        member.port.end();
        throw new TorchletError(this.#ended);
      }
      this.#members.push(member);
      return this.#give(member, { id: this.#next++, load: this.#opening });
    });
    for (const info of await Promise.all(infos)) this.#info = info as ProgramInfo;
  }

  /** What the program consists of. */
  get info(): ProgramInfo {
    if (!this.#info) throw new TorchletError(this.#ended ?? "the program is not loaded");
    return this.#info;
  }

  /** How many workers there are. */
  get size(): number {
    return this.#members.length;
  }

  /** Calls the method `forward`, in the worker that is free first. */
  forward(...inputs: readonly Input[]): Promise<Output[]> {
    return this.execute("forward", inputs);
  }

  /** Calls a method, in the worker that is free first. Inputs are copied to it. */
  execute(method: string, inputs: readonly Input[] = []): Promise<Output[]> {
    return new Promise((done, failed) => {
      if (this.#ended !== undefined) return failed(new TorchletError(this.#ended));
      this.#waiting.push({ request: { id: this.#next++, method, inputs }, done: done as Job["done"], failed });
      this.#deal();
    });
  }

  /** Ends the workers. Calls that are not done fail. */
  dispose(): void {
    this.#lost("the program was disposed of");
  }

  #give(member: Member, request: Request): Promise<ProgramInfo | Output[]> {
    return new Promise((done, failed) => {
      member.job = { request, done, failed };
      member.port.post(request);
    });
  }

  #deal(): void {
    for (const member of this.#members) {
      while (!member.job) {
        if (member.gone) {
          if (!this.#waiting.length) break;
          member.gone = false;
          this.#give(member, { id: this.#next++, load: this.#opening }).catch((error: TorchletError) => this.#lost(error.message));
          break;
        }
        const job = this.#waiting.shift();
        if (!job) return;
        try {
          member.port.post(job.request);
          member.job = job;
        } catch (error) {
          // Inputs that cannot be cloned, such as functions.
          job.failed(new TorchletError(error instanceof Error ? error.message : String(error)));
        }
      }
    }
  }

  #answered(member: Member, answer: Answer): void {
    const job = member.job;
    if (!job || job.request.id !== answer.id) return;
    member.job = undefined;
    if ("value" in answer) job.done(answer.value);
    else {
      member.gone = answer.trap;
      job.failed(new (answer.trap ? TrapError : TorchletError)(answer.error));
    }
    this.#deal();
  }

  /** Nothing can be computed from now on. */
  #lost(why: string): void {
    if (this.#ended !== undefined) return;
    this.#ended = why;
    const jobs = [...this.#members.flatMap(({ job }) => job ?? []), ...this.#waiting];
    for (const { port } of this.#members) port.end();
    this.#members = [];
    this.#waiting = [];
    for (const job of jobs) job.failed(new TorchletError(why));
  }
}

/** Starts a worker. */
async function begin(answered: (answer: Answer) => void, lost: (why: string) => void): Promise<Port> {
  const died = (why: string) => lost(`a worker ended: ${why}`);
  if (typeof Worker === "function") {
    const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<Answer>) => answered(data);
    worker.onerror = ({ message }) => died(message || "it could not be started");
    worker.onmessageerror = () => died("what it wrote cannot be read");
    return { post: (request) => worker.postMessage(request), end: () => worker.terminate() };
  }
  const threads = "node:worker_threads";
  const { Worker: Thread } = (await import(/* @vite-ignore */ /* webpackIgnore: true */ threads)) as {
    Worker: new (url: URL) => {
      on(event: string, call: (value: never) => void): void;
      postMessage(request: Request): void;
      terminate(): Promise<number>;
    };
  };
  const worker = new Thread(new URL("./worker.js", import.meta.url));
  worker.on("message", answered);
  worker.on("error", (error: Error) => died(error.message));
  worker.on("messageerror", (error: Error) => died(error.message));
  return { post: (request) => worker.postMessage(request), end: () => void worker.terminate() };
}
