/**
 * The exports of the WebAssembly module (`web/src`). `xtask/src/web.rs` wraps the glue of
 * `wasm-bindgen` in a function, so that each call creates an instance of its own.
 */

export function instantiate(module: WebAssembly.Module): Engine;

export interface Engine {
  lastPanic(): string;
  memoryBytes(): number;
  Opening: new () => EngineOpening;
  InputValues: new () => EngineInputs;
}

export interface EngineOpening {
  data(bytes: Uint8Array): void;
  asExported(): void;
  memoryLimit(bytes: number): void;
  open(bytes: Uint8Array): EngineProgram;
}

export interface EngineProgram {
  describe(): string;
  load(method: string): void;
  execute(method: string, inputs: EngineInputs): EngineOutputs;
  reset(method: string): void;
  caseInputs(method: string, index: number): EngineOutputs | undefined;
  caseOutputs(method: string, index: number): EngineOutputs | undefined;
  page(file: string, bytes: Uint8Array): string;
}

export interface EngineInputs {
  tensor(dtype: string, shape: Uint32Array, bytes: Uint8Array): void;
  int(value: bigint): void;
  float(value: number): void;
  bool(value: boolean): void;
  text(value: string): void;
  none(): void;
}

export interface EngineOutputs {
  count(): number;
  kind(index: number): string;
  dtype(index: number): string | undefined;
  shape(index: number): Uint32Array;
  bytes(index: number): Uint8Array;
  int(index: number): bigint | undefined;
  float(index: number): number | undefined;
  bool(index: number): boolean | undefined;
  text(index: number): string | undefined;
  free(): void;
}
