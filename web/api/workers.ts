/**
 * Programs in workers: calls do not block the page, and each worker runs one call at a time.
 *
 *     import { loadInWorkers } from "torchlet/workers";
 *     const bytes = await (await fetch("digits.pte")).arrayBuffer();
 *     const pool = await loadInWorkers(bytes, { workers: 4 });
 *     const results = await Promise.all(images.map((image) => pool.forward(image)));
 *     pool.dispose();
 *
 * Each worker loads its own copy of the program, so this makes many calls faster, but not a single
 * call. The page need not be cross-origin isolated. A call goes to any free worker, and the state
 * that a program keeps between calls is per worker. In Node, workers keep the process alive until
 * they are disposed of.
 */

import {
  bytesOf, compile, TorchletError, TrapError,
  type Input, type LoadOptions, type Output, type ProgramInfo,
} from "./index.js";

/** Options for loading a program in workers. */
export interface WorkersOptions extends LoadOptions {
  /** Number of workers. Default: the number of processors, or 2 if the engine hides it. */
  readonly workers?: number;
}

/** A request to a worker, which replies with an {@link Answer} with the same `id`. @internal */
export type Request =
  | { readonly id: number; readonly load: Opening }
  | { readonly id: number; readonly method: string; readonly inputs: readonly Input[] };

/** A program as sent to a worker. @internal */
export interface Opening {
  readonly module: WebAssembly.Module;
  readonly bytes: BufferSource;
  readonly options: Omit<LoadOptions, "module" | "relaxed">;
}

/** @internal */
export type Answer =
  | { readonly id: number; readonly value: ProgramInfo | Output[] }
  | { readonly id: number; readonly error: string; readonly trap: boolean };

/** The common interface of workers in browsers and in Node. */
interface Port {
  post(request: Request): void;
  end(): void;
}

interface Job {
  readonly request: Request;
  readonly done: (value: ProgramInfo | Output[]) => void;
  readonly failed: (error: TorchletError) => void;
}

/** A worker and its current job. */
interface Member {
  port: Port;
  job: Job | undefined;
  /** Whether its program trapped and must be loaded again. */
  gone: boolean;
}

/** Loads a program in workers. */
export async function loadInWorkers(
  bytes: BufferSource,
  options: WorkersOptions = {},
): Promise<Workers> {
  const processors = (globalThis.navigator as Navigator | undefined)?.hardwareConcurrency;
  const { workers = processors ?? 2, module: _, relaxed: __, ...rest } = options;
  if (!Number.isInteger(workers) || workers < 1) {
    throw new TorchletError(`workers: expected a positive integer, found ${workers}`);
  }
  // A copy, because after a trap a worker reloads the program, and the caller may have changed the
  // buffer by then.
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

/** A program loaded in several workers. */
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
      member.port = await begin(
        (answer) => this.#answered(member, answer),
        (why) => this.#lost(why),
      );
      if (this.#ended !== undefined) {
        member.port.end();
        throw new TorchletError(this.#ended);
      }
      this.#members.push(member);
      return this.#give(member, { id: this.#next++, load: this.#opening });
    });
    for (const info of await Promise.all(infos)) this.#info = info as ProgramInfo;
  }

  /** The description of the program. */
  get info(): ProgramInfo {
    if (!this.#info) throw new TorchletError(this.#ended ?? "the program is not loaded");
    return this.#info;
  }

  /** The number of workers. */
  get size(): number {
    return this.#members.length;
  }

  /** Calls the method `forward` in the first free worker. */
  forward(...inputs: readonly Input[]): Promise<Output[]> {
    return this.execute("forward", inputs);
  }

  /** Calls a method in the first free worker. Inputs are copied. */
  execute(method: string, inputs: readonly Input[] = []): Promise<Output[]> {
    return new Promise((done, failed) => {
      if (this.#ended !== undefined) return failed(new TorchletError(this.#ended));
      const request = { id: this.#next++, method, inputs };
      this.#waiting.push({ request, done: done as Job["done"], failed });
      this.#deal();
    });
  }

  /** Ends the workers. Pending calls fail. */
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
          const loaded = this.#give(member, { id: this.#next++, load: this.#opening });
          loaded.catch((error: TorchletError) => this.#lost(error.message));
          break;
        }
        const job = this.#waiting.shift();
        if (!job) return;
        try {
          member.port.post(job.request);
          member.job = job;
        } catch (error) {
          // The inputs cannot be cloned, for example functions.
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

  /** Ends all workers and fails all jobs. */
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
async function begin(
  answered: (answer: Answer) => void,
  lost: (why: string) => void,
): Promise<Port> {
  const died = (why: string) => lost(`a worker ended: ${why}`);
  if (typeof Worker === "function") {
    const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<Answer>) => answered(data);
    worker.onerror = ({ message }) => died(message || "it could not be started");
    worker.onmessageerror = () => died("its message cannot be deserialized");
    return { post: (request) => worker.postMessage(request), end: () => worker.terminate() };
  }
  const threads = "node:worker_threads";
  const node: unknown = await import(/* @vite-ignore */ /* webpackIgnore: true */ threads);
  const { Worker: Thread } = node as {
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
