// Prints the time of a program's fastest run in milliseconds:
// node speed.mjs PACKAGE MODEL plain|relaxed node|BROWSER
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { setFlagsFromString } from "node:v8";

const [packageFolder, model, kind, host] = process.argv.slice(2);

/** Also runs in a page, so it must not use outer variables. */
async function fastest({ load, hasRelaxedSimd }, bytes, module, kind) {
  if (kind === "relaxed" && !hasRelaxedSimd()) throw new Error("the engine has no relaxed SIMD");
  const program = await load(bytes, kind === "plain" ? { module } : {});
  const inputs = program.method("forward").inputs.map(({ kind, dtype, shape, value }) => {
    if (kind !== "tensor") return value;
    if (dtype !== "float32") throw new Error(`the input is ${dtype}, not float32`);
    return { dtype, shape, data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, Math.random) };
  });
  let least = Infinity;
  // The engine has not optimized the code in the first runs.
  for (let run = 0; run < 40; run++) {
    const start = performance.now();
    program.forward(...inputs);
    least = Math.min(least, performance.now() - start);
  }
  return least;
}

if (host === "node") {
  // Node 20 needs a flag for it.
  if (kind === "relaxed") setFlagsFromString("--experimental-wasm-relaxed-simd");
  const dist = new URL("dist/", pathToFileURL(packageFolder + "/"));
  console.log(await fastest(await import(new URL("index.js", dist)), await readFile(model), new URL("torchlet.wasm", dist), kind));
} else {
  const { launch, served } = await import("./browser.mjs");
  const browser = await launch(host);
  const page = await served(browser, packageFolder, { "/model": model });
  const call = `const bytes = await (await fetch("/model")).arrayBuffer(); return fastest(await import("/dist/index.js"), bytes, "/dist/torchlet.wasm", "${kind}");`;
  console.log(await page.evaluate(`(async () => { ${fastest}; ${call} })()`));
  await browser.close();
}
