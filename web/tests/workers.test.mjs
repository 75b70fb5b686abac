// Tests of programs in workers of Node. TORCHLET_PACKAGE is the folder of the package.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const fixtures = new URL("../../tests/fixtures/", import.meta.url);
const dist = new URL("dist/", pathToFileURL(process.env.TORCHLET_PACKAGE + "/"));
const { load, TorchletError, TrapError } = await import(new URL("index.js", dist));
const { loadInWorkers } = await import(new URL("workers.js", dist));
const file = (name) => readFile(new URL(name, fixtures));
const image = (seed) => Float32Array.from({ length: 64 }, (_, at) => ((at * 7 + seed * 13) % 17) / 16);

test("concurrent calls match single calls", async () => {
  const bytes = await file("digits/digits.pte");
  const alone = await load(bytes);
  const pool = await loadInWorkers(bytes, { workers: 3 });
  assert.equal(pool.size, 3);
  assert.deepEqual(pool.info, alone.info);
  const seeds = Array.from({ length: 50 }, (_, seed) => seed);
  const found = await Promise.all(seeds.map((seed) => pool.forward(image(seed))));
  seeds.forEach((seed) => assert.deepEqual(found[seed], alone.forward(image(seed))));
  pool.dispose();
});

test("an error affects only its call", async () => {
  const pool = await loadInWorkers(await file("digits/digits.pte"), { workers: 1 });
  const calls = [pool.forward(new Float32Array(63)), pool.forward(() => 1), pool.execute("backward"), pool.forward(image(1))];
  const results = await Promise.allSettled(calls);
  assert.deepEqual(results.map(({ status }) => status), ["rejected", "rejected", "rejected", "fulfilled"]);
  for (const { reason } of results.slice(0, 3)) assert.ok(reason instanceof TorchletError && !(reason instanceof TrapError), String(reason));
  assert.match(results[2].reason.message, /the program has no method 'backward'; it has forward/);
  pool.dispose();
});

/** A mock of an engine's workers. */
async function standIn(answer, run) {
  globalThis.Worker = class {
    ended = false;
    postMessage(request) {
      setTimeout(() => !this.ended && answer(this, request), 0);
    }
    terminate() {
      this.ended = true;
    }
  };
  try {
    await run();
  } finally {
    delete globalThis.Worker;
  }
}

test("a program that trapped is reloaded for the next call", async () => {
  const asked = [];
  const answer = (worker, { id, load, inputs }) => {
    asked.push(load ? "load" : inputs[0]);
    const traps = inputs?.[0] === 1;
    worker.onmessage({ data: traps ? { id, error: "the program trapped", trap: true } : { id, value: load ? { methods: [] } : inputs } });
  };
  await standIn(answer, async () => {
    const pool = await loadInWorkers(await file("digits/digits.pte"), { workers: 1 });
    const calls = await Promise.allSettled([0, 1, 2, 3].map((input) => pool.forward(input)));
    assert.deepEqual(calls.map(({ status }) => status), ["fulfilled", "rejected", "fulfilled", "fulfilled"]);
    assert.ok(calls[1].reason instanceof TrapError);
    assert.deepEqual(calls[3].value, [3]);
    assert.deepEqual(asked, ["load", 0, 1, "load", 2, 3]);
    pool.dispose();
  });
});

test("a worker that ends fails all calls, with a reason", async () => {
  const answer = (worker, { id, load }) => (load ? worker.onmessage({ data: { id, value: { methods: [] } } }) : worker.onerror({ message: "out of memory" }));
  await standIn(answer, async () => {
    const pool = await loadInWorkers(await file("digits/digits.pte"), { workers: 2 });
    for (const { reason } of await Promise.allSettled([1, 2, 3].map((input) => pool.forward(input)))) assert.match(String(reason), /a worker ended: out of memory/);
    await assert.rejects(() => pool.forward(4), /a worker ended/);
  });
});

test("load errors and disposed pools are reported", async () => {
  const bytes = await file("digits/digits.pte");
  await assert.rejects(() => loadInWorkers(bytes.subarray(0, 3000), { workers: 2 }), TorchletError);
  await assert.rejects(() => loadInWorkers(bytes, { workers: 0 }), /workers: expected a positive integer, found 0/);
  const pool = await loadInWorkers(bytes, { workers: 1 });
  const calls = [pool.forward(image(1)), pool.forward(image(2))];
  pool.dispose();
  for (const { reason } of await Promise.allSettled(calls)) assert.match(String(reason), /disposed of/);
  await assert.rejects(() => pool.forward(image(1)), /disposed of/);
});
