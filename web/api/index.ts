/**
 * Runs PyTorch programs that were exported with ExecuTorch (`.pte` files), in WebAssembly.
 *
 *     import { load } from "torchlet";
 *     const program = await load(await (await fetch("digits.pte")).arrayBuffer());
 *     const [logits] = program.forward(new Float32Array(64));
 *
 * Each program has a WebAssembly instance of its own: its memory is freed with it, and a trap
 * caused by a file or an input ends this program only. Start reading at {@link load}.
 */

import {
  instantiate, type Engine, type EngineInputs, type EngineOutputs, type EngineProgram,
} from "./engine.js";

/** The element types of tensors, by their PyTorch names. */
export type DType =
  | "float32" | "float64" | "float16" | "bfloat16"
  | "uint8" | "int8" | "int16" | "int32" | "int64" | "bool" | "uint16" | "uint32" | "uint64";

/**
 * Elements of a tensor. `float16` and `bfloat16` are stored as their bits in a `Uint16Array`,
 * `bool` as 0 and 1 in a `Uint8Array`.
 */
export type Elements =
  | Float32Array | Float64Array | Uint8Array | Int8Array | Int16Array | Int32Array
  | BigInt64Array | Uint16Array | Uint32Array | BigUint64Array;

/** A tensor: elements in row-major order. */
export interface Tensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly data: Elements;
}

/**
 * An input value. A typed array gets the element type and shape that the method declares.
 * `undefined` keeps the previous value of the input, where the method allows that.
 */
export type Input = Tensor | Elements | number | bigint | boolean | string | undefined;

/** An output value. Integers are `bigint`, floating-point numbers `number`. */
export type Output = Tensor | number | bigint | boolean | string | undefined;

/** The declared type of an input or output. The shape of a dynamic tensor is its upper bound. */
export type ValueInfo =
  | {
      readonly kind: "tensor";
      readonly dtype: string;
      readonly shape: readonly number[];
      readonly dynamic: boolean;
      readonly name: string | null;
    }
  | { readonly kind: "int"; readonly value: string }
  | { readonly kind: "float"; readonly value: number }
  | { readonly kind: "bool"; readonly value: boolean }
  | { readonly kind: "string"; readonly value: string }
  | { readonly kind: "list"; readonly length: number }
  | { readonly kind: "none" }
  | { readonly kind: "malformed"; readonly why: string };

/** A method of a program. */
export interface MethodInfo {
  readonly name: string;
  readonly inputs: readonly ValueInfo[];
  readonly outputs: readonly ValueInfo[];
  /** The backends that its delegates run on. */
  readonly backends: readonly string[];
  /** The number of test cases in the file. */
  readonly cases: number;
}

/** A description of a program. */
export interface ProgramInfo {
  readonly fileBytes: number;
  readonly methods: readonly MethodInfo[];
  /** Whether torchlet compiled the program for this machine; if compilation failed, the reason. */
  readonly origin: { readonly compiled: boolean; readonly why?: string };
}

/** Options for loading a program. */
export interface LoadOptions {
  /** Files of external data (`.ptd`). */
  readonly data?: readonly BufferSource[];
  /** Runs the program as exported, without compiling it for this machine. */
  readonly asExported?: boolean;
  /** Maximum memory of a method in bytes. */
  readonly memoryLimit?: number;
  /** The WebAssembly module: bytes, compiled, or a location. By default, the package's module. */
  readonly module?: ModuleSource;
  /**
   * The package's `torchlet.relaxed`, for a `module` given as bytes or a location. Adds relaxed
   * SIMD where the engine supports it.
   */
  readonly relaxed?: FileSource;
}

/** The source of the WebAssembly module. */
export type ModuleSource = FileSource | WebAssembly.Module;

/** Bytes, or the location to fetch them from. */
export type FileSource = BufferSource | Response | URL | string;

/** An error whose message is one sentence. */
export class TorchletError extends Error {
  override readonly name: string = "TorchletError";
}

/** The program trapped and must be loaded again. Other programs are unaffected. */
export class TrapError extends TorchletError {
  override readonly name: string = "TrapError";
}

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, bfloat16: Uint16Array,
  uint8: Uint8Array, int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  bool: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
} as const;

/** The typed-array constructor for an element type. */
function arrayOf(dtype: string) {
  return Object.hasOwn(ARRAYS, dtype) ? ARRAYS[dtype as DType] : undefined;
}

function isElements(value: unknown): value is Elements {
  return ArrayBuffer.isView(value) && !(value instanceof DataView);
}

/** @internal */
export function bytesOf(source: BufferSource | Elements): Uint8Array {
  if (!ArrayBuffer.isView(source)) return new Uint8Array(source);
  return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
}

/* A module with a relaxed fused multiply-add, which only engines with relaxed SIMD accept. */
const PROBE = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0,
  65, 0, 253, 15, 65, 0, 253, 15, 65, 0, 253, 15, 253, 133, 2, 11,
];

/**
 * Whether the engine has relaxed SIMD. It makes matrix multiplication faster, but the last bits of
 * results differ between processors.
 */
export function hasRelaxedSimd(): boolean {
  return WebAssembly.validate(Uint8Array.from(PROBE));
}

let packaged: Promise<WebAssembly.Module> | undefined;

/** Compiles the WebAssembly module of the given options. @internal */
export async function compile({ module, relaxed }: LoadOptions): Promise<WebAssembly.Module> {
  if (module === undefined) {
    const own = {
      module: new URL("./torchlet.wasm", import.meta.url),
      relaxed: new URL("./torchlet.relaxed", import.meta.url),
    };
    packaged ??= compile(own).catch((error: unknown) => {
      // The next call tries again.
      packaged = undefined;
      throw error;
    });
    return packaged;
  }
  if (module instanceof WebAssembly.Module) return module;
  if (relaxed === undefined || !hasRelaxedSimd()) {
    return WebAssembly.compile(await bytesFrom(module));
  }
  const [plain, patch] = await Promise.all([bytesFrom(module), bytesFrom(relaxed)]);
  return WebAssembly.compile(patched(bytesOf(plain), bytesOf(patch)));
}

async function bytesFrom(source: FileSource): Promise<BufferSource> {
  if (typeof source === "string" || source instanceof URL) {
    const url = new URL(source, import.meta.url);
    if (url.protocol === "file:" && "process" in globalThis) {
      // Node cannot fetch files. A variable keeps bundlers for browsers from resolving the import.
      const files = "node:fs/promises";
      const { readFile } = (await import(/* @vite-ignore */ /* webpackIgnore: true */ files)) as {
        readFile(url: URL): Promise<BufferSource>;
      };
      return readFile(url);
    }
    return bytesFrom(await fetch(url));
  }
  if (!(source instanceof Response)) return source;
  if (!source.ok) {
    throw new TorchletError(`cannot fetch ${source.url}: ${source.status} ${source.statusText}`);
  }
  return source.arrayBuffer();
}

/**
 * Applies a patch to a module. `web/bind/src/patch.rs` describes the format and the checksum.
 * @internal
 */
export function patched(module: Uint8Array, patch: Uint8Array): Uint8Array<ArrayBuffer> {
  const malformed = new TorchletError(
    "torchlet.relaxed and torchlet.wasm are damaged or not of the same build",
  );
  let at = 0, from = 0, to = 0;
  const number = (): number => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = patch[at++];
      if (byte === undefined || scale > 2 ** 35) throw malformed;
      value += (byte % 128) * scale;
      if (byte < 128) return value;
    }
  };
  const length = number(), sum = number();
  // Bounds the memory that a damaged length can request.
  if (length > 2 * module.length + patch.length) throw malformed;
  const made = new Uint8Array(length);
  while (to < length) {
    const own = number();
    if (at + own > patch.length || to + own > length) throw malformed;
    made.set(patch.subarray(at, at + own), to);
    at += own;
    to += own;
    const step = number(), same = number();
    from += step % 2 ? -(step + 1) / 2 : step / 2;
    if (from < 0 || from + same > module.length) throw malformed;
    if (to + same > length || own + same === 0) throw malformed;
    made.set(module.subarray(from, from + same), to);
    from += same;
    to += same;
  }
  let found = 0;
  for (const byte of made) found = (Math.imul(found, 31) + byte) | 0;
  if (found >>> 0 !== sum) throw malformed;
  return made;
}

/** Loads a program. */
export async function load(bytes: BufferSource, options: LoadOptions = {}): Promise<Program> {
  return open(await compile(options), bytes, options);
}

/** Loads a program synchronously with a compiled module. */
export function open(
  module: WebAssembly.Module,
  bytes: BufferSource,
  options: Omit<LoadOptions, "module" | "relaxed"> = {},
): Program {
  return new Program(instantiate(module), bytes, options);
}

/** A loaded program. */
export class Program {
  #engine: Engine | undefined;
  #program: EngineProgram | undefined;
  #trap: string | undefined;
  /** The description of the program. */
  readonly info: ProgramInfo;

  /** @internal Use {@link load}. */
  constructor(
    engine: Engine,
    bytes: BufferSource,
    options: Omit<LoadOptions, "module" | "relaxed">,
  ) {
    this.#engine = engine;
    this.#program = this.#guard(() => {
      const opening = new engine.Opening();
      for (const data of options.data ?? []) opening.data(bytesOf(data));
      if (options.asExported) opening.asExported();
      if (options.memoryLimit !== undefined) opening.memoryLimit(options.memoryLimit);
      return opening.open(bytesOf(bytes));
    });
    this.info = this.#guard(() => JSON.parse(this.#live().describe()) as ProgramInfo);
  }

  /** The names of the methods. */
  get methods(): readonly string[] {
    return this.info.methods.map((method) => method.name);
  }

  /** The description of a method. */
  method(name = "forward"): MethodInfo {
    const found = this.info.methods.find((method) => method.name === name);
    if (!found) {
      const names = this.methods.join(", ") || "no methods";
      throw new TorchletError(`the program has no method '${name}'; it has ${names}`);
    }
    return found;
  }

  /** Calls the method `forward`. */
  forward(...inputs: readonly Input[]): Output[] {
    return this.execute("forward", inputs);
  }

  /** Calls a method. */
  execute(method: string, inputs: readonly Input[] = []): Output[] {
    const slots = this.method(method).inputs;
    if (inputs.length > slots.length) {
      throw new TorchletError(
        `method '${method}': expected at most ${slots.length} inputs, found ${inputs.length}`,
      );
    }
    return this.#guard(() => {
      const values = new (this.#engineLive().InputValues)();
      inputs.forEach((input, index) => push(values, input, slots[index], index));
      return read(this.#live().execute(method, values));
    });
  }

  /** Loads a method ahead of its first call: packs weights and allocates memory. */
  prepare(method = "forward"): void {
    this.#guard(() => this.#live().load(method));
  }

  /** Resets the state of a method to its initial values. */
  reset(method = "forward"): void {
    this.#guard(() => this.#live().reset(method));
  }

  /** A test case of the file: inputs, and the outputs that PyTorch computed. */
  testCase(method: string, index: number): { inputs: Output[]; expected: Output[] } | undefined {
    return this.#guard(() => {
      const inputs = this.#live().caseInputs(method, index);
      const expected = this.#live().caseOutputs(method, index);
      return inputs && expected ? { inputs: read(inputs), expected: read(expected) } : undefined;
    });
  }

  /**
   * An HTML page with the program's graphs, memory plans and weights. `bytes` are those that it was
   * loaded from.
   */
  page(name: string, bytes: BufferSource): string {
    return this.#guard(() => this.#live().page(name, bytesOf(bytes)));
  }

  /** Memory of the program's WebAssembly instance in bytes. */
  get memoryBytes(): number {
    return this.#guard(() => this.#engineLive().memoryBytes());
  }

  /** Releases the program and its memory. Otherwise, the garbage collector does. */
  dispose(): void {
    this.#engine = undefined;
    this.#program = undefined;
  }

  #engineLive(): Engine {
    if (this.#trap !== undefined) {
      throw new TrapError(`the program trapped in an earlier call (${this.#trap}); load it again`);
    }
    if (!this.#engine) throw new TorchletError("the program was disposed of");
    return this.#engine;
  }

  #live(): EngineProgram {
    this.#engineLive();
    return this.#program as EngineProgram;
  }

  /** Wraps errors of the engine in {@link TorchletError}, and drops the instance after a trap. */
  #guard<T>(call: () => T): T {
    try {
      return call();
    } catch (error) {
      if (error instanceof TorchletError) throw error;
      // Engines report a stack overflow as a RangeError or InternalError.
      const isTrap =
        error instanceof WebAssembly.RuntimeError ||
        error instanceof RangeError ||
        (error as Error)?.name === "InternalError";
      if (!isTrap) throw new TorchletError(error instanceof Error ? error.message : String(error));
      let why = (error as Error).message;
      try {
        why = this.#engine?.lastPanic() || why;
      } catch {
        // The engine's own message suffices.
      }
      this.dispose();
      this.#trap = why;
      throw new TrapError(`the program trapped: ${why}; load it again`);
    }
  }
}

function push(
  values: EngineInputs,
  input: Input,
  slot: ValueInfo | undefined,
  index: number,
): void {
  switch (typeof input) {
    case "undefined": return values.none();
    case "boolean": return values.bool(input);
    case "string": return values.text(input);
    case "bigint":
      if (BigInt.asIntN(64, input) !== input) {
        throw new TorchletError(`input ${index}: ${input} does not fit 64 bits`);
      }
      return values.int(input);
    case "number":
      if (slot?.kind !== "int") return values.float(input);
      if (!Number.isSafeInteger(input)) {
        throw new TorchletError(`input ${index}: expected an integer, found ${input}`);
      }
      return values.int(BigInt(input));
  }
  if (isElements(input)) {
    if (slot?.kind !== "tensor") {
      throw new TorchletError(
        `input ${index}: expected ${slot?.kind ?? "no value"}, found a ${input.constructor.name}`,
      );
    }
    const { dtype, shape } = slot;
    if (slot.dynamic) {
      throw new TorchletError(
        `input ${index} has a dynamic shape: pass a tensor { dtype, shape, data } of at most ` +
          `[${shape.join(", ")}]`,
      );
    }
    return pushTensor(values, { dtype: dtype as DType, shape, data: input }, index);
  }
  const isTensor =
    input !== null &&
    typeof input === "object" &&
    isElements(input.data) &&
    Array.isArray(input.shape);
  if (!isTensor) {
    throw new TorchletError(
      `input ${index}: expected a tensor { dtype, shape, data }, a typed array, a number, ` +
        "a boolean or a string",
    );
  }
  pushTensor(values, input, index);
}

function pushTensor(values: EngineInputs, { dtype, shape, data }: Tensor, index: number): void {
  const array = arrayOf(dtype);
  if (array && !(data instanceof array)) {
    throw new TorchletError(
      `input ${index}: expected a ${array.name} for ${dtype}, found a ${data.constructor.name}`,
    );
  }
  if (shape.some((size) => !Number.isInteger(size) || size < 0 || size > 0xffff_ffff)) {
    throw new TorchletError(`input ${index}: [${shape.join(", ")}] is not a valid shape`);
  }
  values.tensor(dtype, Uint32Array.from(shape), bytesOf(data));
}

function read(values: EngineOutputs): Output[] {
  const outputs = Array.from({ length: values.count() }, (_, index) => readOne(values, index));
  values.free();
  return outputs;
}

function readOne(values: EngineOutputs, index: number): Output {
  switch (values.kind(index)) {
    case "tensor": {
      const dtype = values.dtype(index) as DType, bytes = values.bytes(index);
      // Types without a typed array are returned as bytes.
      const array = arrayOf(dtype) ?? Uint8Array;
      // The bytes are a copy in a separate buffer.
      const { buffer, byteOffset, byteLength } = bytes;
      const length = byteLength / array.BYTES_PER_ELEMENT;
      const data = new array(buffer as ArrayBuffer, byteOffset, length);
      return { dtype, shape: Array.from(values.shape(index)), data };
    }
    case "int": return values.int(index);
    case "float": return values.float(index);
    case "bool": return values.bool(index);
    case "string": return values.text(index);
    default: return undefined;
  }
}
