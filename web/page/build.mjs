// Writes the page, a self-contained file: node build.mjs PACKAGE PAGE
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const [packageFolder, page] = process.argv.slice(2);
const here = (name) => readFile(new URL(name, import.meta.url), "utf8");
const dist = (name) => readFile(join(packageFolder, "dist", name));

// A page opened from a file cannot import modules, so they are concatenated to one script.
const engine = (await dist("engine.js")).toString().replace(/^export /gm, "");
const index = (await dist("index.js")).toString();
const api = index.replace(/^import .*$/gm, "").replace(/^export /gm, "");
const script = [engine, api, await here("page.js")].join("\n");
if (/<\/script/i.test(script)) throw new Error("the script contains </script");

const packed = (bytes) => gzipSync(bytes, { level: 9 }).toString("base64");
const parts = {
  SCRIPT: script,
  MODULE: packed(await dist("torchlet.wasm")),
  RELAXED: packed(await dist("torchlet.relaxed")),
  MODEL: packed(await readFile(new URL("../../tests/fixtures/digits/digits.pte", import.meta.url))),
};
let text = await here("page.html");
for (const [name, value] of Object.entries(parts)) text = text.replace(`"${name}"`, () => value);
await writeFile(page, text);
