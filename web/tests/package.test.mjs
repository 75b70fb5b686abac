// Tests of the JavaScript package against outputs of PyTorch. TORCHLET_PACKAGE is the folder of the
// package.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { describe, test as one } from "node:test";
import { pathToFileURL } from "node:url";
import { setFlagsFromString } from "node:v8";

const fixtures = new URL("../../tests/fixtures/", import.meta.url);
const dist = new URL("dist/", pathToFileURL(process.env.TORCHLET_PACKAGE + "/"));
const { load: loadPackaged, open, hasRelaxedSimd, patched, TorchletError, TrapError } = await import(new URL("index.js", dist));
const file = (name) => readFile(new URL(name, fixtures));
const [plain, patch] = [await readFile(new URL("torchlet.wasm", dist)), await readFile(new URL("torchlet.relaxed", dist))];
const argmax = (values) => values.indexOf(Math.max(...values));

/** The elements of a .npy file of float32 or int64, and its shape. */
function npy(bytes) {
  const length = bytes.readUInt16LE(8), header = bytes.toString("latin1", 10, 10 + length);
  const shape = header.match(/'shape': \(([^)]*)\)/)[1].split(",").filter((it) => it.trim()).map(Number);
  assert.match(header, /'<f4'/);
  return { shape, data: new Float32Array(bytes.buffer.slice(bytes.byteOffset + 10 + length, bytes.byteOffset + bytes.length)) };
}

function assertClose(found, expected, what) {
  assert.equal(found.dtype, expected.dtype, what);
  assert.deepEqual(found.shape, expected.shape, what);
  assert.equal(found.data.length, expected.data.length, what);
  expected.data.forEach((want, at) => {
    const got = found.data[at];
    if (typeof want === "bigint" || Number.isNaN(want)) return assert.deepEqual(got, want, `${what} at ${at}`);
    const near = got === want || Math.abs(got - want) <= 1e-4 + 1e-3 * Math.abs(want);
    assert.ok(near, `${what} at ${at}: ${got}, PyTorch has ${want}`);
  });
}

// Node 20 needs a flag for relaxed SIMD.
if (!hasRelaxedSimd()) setFlagsFromString("--experimental-wasm-relaxed-simd");

/** The modules to load programs with. Each test below runs with both. */
let compiled;
const load = (bytes, options = {}) => loadPackaged(bytes, { ...options, module: compiled });
const modules = { "plain SIMD": plain, "relaxed SIMD": patched(plain, patch) };
const tests = [];
const test = (name, run) => tests.push([name, run]);

one("the package selects a module that the engine supports", async () => {
  assert.ok(hasRelaxedSimd());
  const compile = WebAssembly.compile, validate = WebAssembly.validate;
  const sizes = [];
  // Node compiles small modules of its own, too.
  WebAssembly.compile = (bytes) => (bytes.byteLength > 1e6 && sizes.push(bytes.byteLength), compile(bytes));
  try {
    // Without options, the package's files; otherwise, the given ones. A module alone is not patched.
    const digits = await file("digits/digits.pte");
    await loadPackaged(digits);
    await loadPackaged(digits, { module: plain, relaxed: patch });
    await loadPackaged(digits, { module: plain });
    WebAssembly.validate = () => false;
    await loadPackaged(digits, { module: plain, relaxed: patch });
  } finally {
    Object.assign(WebAssembly, { compile, validate });
  }
  const [own, other] = [modules["relaxed SIMD"].length, plain.length];
  assert.notEqual(own, other);
  assert.deepEqual(sizes, [own, own, other, other]);
});

one("missing files of the package are named, and mismatched ones are rejected", async () => {
  const digits = await file("digits/digits.pte");
  await assert.rejects(() => loadPackaged(digits, { module: plain, relaxed: new URL("nothing.relaxed", dist) }), /nothing\.relaxed/);
  assert.deepEqual(Buffer.from(patched(plain, patch)), Buffer.from(modules["relaxed SIMD"]));
  const other = Uint8Array.from(plain);
  other[Math.floor(plain.length / 2)] ^= 1;
  assert.throws(() => patched(other, patch), (error) => error instanceof TorchletError && /not of the same build/.test(error.message));
  let state = 1;
  for (let round = 0; round < 40; round++) {
    state = Math.imul(state, 1103515245) + 12345 >>> 0;
    const damaged = Uint8Array.from(patch);
    damaged[state % (round < 20 ? 64 : patch.length)] ^= 1 << (round % 8);
    assert.throws(() => patched(plain, damaged), TorchletError);
  }
  for (const length of [0, 1, 5, patch.length - 1]) assert.throws(() => patched(plain, patch.subarray(0, length)), TorchletError);
});

test("the digits program classifies an image", async () => {
  const program = await load(await file("digits/digits.pte"));
  assert.deepEqual(program.methods, ["forward"]);
  const { inputs, outputs } = program.method();
  assert.deepEqual(inputs[0], { kind: "tensor", dtype: "float32", shape: [1, 1, 8, 8], dynamic: false, name: null });
  assert.deepEqual(outputs[0].shape, [1, 10]);
  assert.ok(program.info.origin.compiled);
  const [logits] = program.forward(npy(await file("digits/image_2.npy")).data);
  assert.ok(logits.data instanceof Float32Array);
  assert.equal(argmax([...logits.data]), 2);
  assert.ok(program.memoryBytes > 1e6);
});

test("networks match PyTorch, compiled and as exported", async () => {
  const names = ["bert", "convnext", "densenet", "efficientnet", "gru", "inception", "lstm", "mobilenet_v2"];
  const present = await readdir(new URL("models/", fixtures));
  for (const name of [...names.map((it) => `models/${it}.bpte`), "digits/digits_bf16.bpte", "digits/digits_int8.bpte"]) {
    assert.ok(!name.startsWith("models/") || present.includes(name.slice(7)), name);
    for (const asExported of [false, true]) {
      const program = await load(await file(name), { asExported });
      const { cases } = program.method();
      assert.ok(cases > 0, name);
      for (let index = 0; index < cases; index++) {
        const { inputs, expected } = program.testCase("forward", index);
        const outputs = program.forward(...inputs);
        // 16-bit floats are returned as bits, which cannot be compared with a tolerance.
        if (expected.some((it) => it.data instanceof Uint16Array)) {
          assert.deepEqual(outputs.map((it) => it.shape), expected.map((it) => it.shape));
          continue;
        }
        outputs.forEach((output, at) => assertClose(output, expected[at], `${name}, case ${index}, output ${at}`));
      }
      assert.equal(program.testCase("forward", cases), undefined);
    }
  }
});

test("dynamic shapes must be passed", async () => {
  const program = await load(await file("digits/digits_dynamic_batch.bpte"));
  const image = npy(await file("digits/image_2.npy")).data;
  for (const batch of [1, 2]) {
    const data = Float32Array.from({ length: 64 * batch }, (_, at) => image[at % 64]);
    const [logits] = program.forward({ dtype: "float32", shape: [batch, 1, 8, 8], data });
    assert.deepEqual(logits.shape, [batch, 10]);
    assert.equal(argmax([...logits.data.slice(-10)]), 2);
  }
  assert.throws(() => program.forward(image), /input 0 has a dynamic shape: pass a tensor/);
});

test("external data", async () => {
  const program = await file("digits/digits_external.pte");
  const data = [await file("digits/digits_external._default_external_constant.ptd")];
  const [logits] = (await load(program, { data })).forward(npy(await file("digits/image_2.npy")).data);
  assert.equal(argmax([...logits.data]), 2);
  await assert.rejects(async () => (await load(program)).forward(new Float32Array(64)), TorchletError);
});

test("invalid inputs are errors, and the program stays usable", async () => {
  const program = await load(await file("digits/digits.pte"));
  const wrong = [
    [[], /input/],
    [[new Float32Array(63)], /expected 64 elements, found 63/],
    [[new Float64Array(64)], /input 0: expected a Float32Array for float32, found a Float64Array/],
    [[new Float32Array(64), 1], /expected at most 1 inputs, found 2/],
    [[{ dtype: "float31", shape: [1], data: new Float32Array(1) }], /unknown dtype "float31"; expected one of float32/],
    [[{ dtype: "float32", shape: [-1], data: new Float32Array(1) }], /\[-1\] is not a valid shape/],
    [[{ dtype: "float32", shape: [4294967295, 4294967295, 4294967295], data: new Float32Array(1) }], /./],
    [[{ dtype: "float32", shape: [1, 1, 4, 4], data: new Float32Array(16) }], /./],
    [[{ dtype: "bool", shape: [1], data: new Uint8Array([2]) }], /bool tensor: expected elements 0 and 1/],
    [[null], /input 0: expected a tensor/],
    [["text"], /./],
    [[1n << 64n], /does not fit 64 bits/],
  ];
  for (const [inputs, says] of wrong) {
    assert.throws(() => program.forward(...inputs), (error) => error instanceof TorchletError && !(error instanceof TrapError) && says.test(error.message), String(says));
  }
  assert.throws(() => program.execute("backward"), /the program has no method 'backward'; it has forward/);
  assert.throws(() => program.prepare("backward"), TorchletError);
  assert.equal(program.forward(new Float32Array(64)).length, 1);
  program.dispose();
  assert.throws(() => program.forward(new Float32Array(64)), /disposed/);
});

test("damaged files are errors, and never traps", async () => {
  for (const name of ["digits/digits.pte", "models/mobilenet_v2.bpte", "digits/digits_int8.pte"]) {
    const whole = await file(name);
    const damaged = [new Uint8Array(0), new Uint8Array(100), whole.subarray(0, whole.length / 2)];
    let state = 1;
    const random = (below) => ((state = (Math.imul(state, 1103515245) + 12345) >>> 0) >>> 8) % below;
    for (let count = 0; count < 60; count++) {
      const copy = Uint8Array.from(whole);
      for (let times = 0; times < 8; times++) copy[random(Math.min(copy.length, 6000))] = random(256);
      damaged.push(copy);
    }
    let refused = 0;
    for (const bytes of damaged) {
      try {
        const program = open(compiled, bytes);
        for (const method of program.methods) program.execute(method, program.method(method).inputs.map(() => undefined));
      } catch (error) {
        refused++;
        assert.ok(error instanceof TorchletError && !(error instanceof TrapError), `${name}: ${error.stack}`);
        assert.ok(error.message.length > 10, error.message);
      }
    }
    assert.ok(refused >= 3, name);
  }
});

test("a trap ends one program, with a reason", async () => {
  const bytes = await file("digits/digits.pte");
  const [first, second] = [await load(bytes), await load(bytes)];
  // The errors of engines for a stack overflow.
  const typed = Uint32Array.from;
  Uint32Array.from = () => {
    throw new WebAssembly.RuntimeError("unreachable");
  };
  const input = { dtype: "float32", shape: [1, 1, 8, 8], data: new Float32Array(64) };
  try {
    assert.throws(() => first.forward(input), (error) => error instanceof TrapError && /trapped: unreachable; load it again/.test(error.message));
  } finally {
    Uint32Array.from = typed;
  }
  assert.throws(() => first.forward(input), /the program trapped in an earlier call/);
  assert.equal(second.forward(input).length, 1);
});

test("state persists and can be reset", async () => {
  const program = await load(await file("models/gru_streaming.bpte"));
  const { inputs } = program.testCase("forward", 0);
  const once = program.forward(...inputs);
  const twice = program.forward(...inputs);
  program.reset();
  assert.deepEqual(program.forward(...inputs), once);
  assert.notDeepEqual(twice, once);
});

test("the inspector's page", async () => {
  const bytes = await file("digits/digits.pte");
  const page = (await load(bytes)).page("digits.pte", bytes);
  assert.match(page, /<title>digits\.pte · torchlet<\/title>/);
  assert.match(page, /aten::convolution\.out/);
});

for (const [name, module] of Object.entries(modules)) {
  describe(name, async () => {
    for (const [title, run] of tests) {
      one(title, async () => {
        compiled = await WebAssembly.compile(module);
        await run();
      });
    }
  });
}
