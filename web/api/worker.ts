/* The worker script of `workers.ts`: one program, which handles requests in order. */

import { open, TrapError, type Output, type Program } from "./index.js";
import type { Answer, Request } from "./workers.js";

type Post = (answer: Answer, transfer: ArrayBuffer[]) => void;

let program: Program | undefined;

function answer(request: Request, post: Post): void {
  const { id } = request;
  try {
    if ("load" in request) {
      const { module, bytes, options } = request.load;
      program = open(module, bytes, options);
      post({ id, value: program.info }, []);
    } else if (program) {
      const value = program.execute(request.method, request.inputs);
      post({ id, value }, value.flatMap(memoryOf));
    }
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    post({ id, error: message, trap: error instanceof TrapError }, []);
  }
}

/** The buffer of an output, to be transferred: no one else refers to it. */
function memoryOf(output: Output): ArrayBuffer[] {
  const buffer = typeof output === "object" ? output.data.buffer : undefined;
  return buffer instanceof ArrayBuffer ? [buffer] : [];
}

const scope = globalThis as unknown as {
  postMessage?: Post;
  onmessage?: (event: { data: Request }) => void;
};
if (typeof scope.postMessage === "function") {
  const post: Post = (value, transfer) => scope.postMessage?.(value, transfer);
  scope.onmessage = ({ data }) => answer(data, post);
} else {
  const threads = "node:worker_threads";
  const { parentPort } = (await import(/* @vite-ignore */ /* webpackIgnore: true */ threads)) as {
    parentPort: { postMessage: Post; on(event: "message", call: (request: Request) => void): void };
  };
  const post: Post = (value, transfer) => parentPort.postMessage(value, transfer);
  parentPort.on("message", (request) => answer(request, post));
}
