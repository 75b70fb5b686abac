// Prints the time of a program's fastest run, in milliseconds: node speed.mjs PACKAGE MODEL
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [packageFolder, model] = process.argv.slice(2);
const { load } = await import(new URL("dist/index.js", pathToFileURL(packageFolder + "/")));
const program = await load(await readFile(model));
const inputs = program.method("forward").inputs.map(({ kind, dtype, shape, value }) => {
  if (kind !== "tensor") return value;
  if (dtype !== "float32") throw new Error(`the input is ${dtype}, not float32`);
  return { dtype, shape, data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, Math.random) };
});
let fastest = Infinity;
// The first runs are of code that the engine has not optimised.
for (let run = 0; run < 25; run++) {
  const start = performance.now();
  program.forward(...inputs);
  fastest = Math.min(fastest, performance.now() - start);
}
console.log(fastest);
