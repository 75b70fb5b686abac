// Writes the page, one file that needs nothing else: node build.mjs PACKAGE PAGE
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const [packageFolder, page] = process.argv.slice(2);
const here = (name) => readFile(new URL(name, import.meta.url), "utf8");
const dist = (name) => readFile(join(packageFolder, "dist", name));

// Modules of their own could not be imported from a file: they become one script.
const engine = (await dist("engine.js")).toString().replace(/^export /gm, "");
const api = (await dist("index.js")).toString().replace(/^import .*$/gm, "").replace(/^export /gm, "");
const script = [engine, api, await here("page.js")].join("\n");
if (/<\/script/i.test(script)) throw new Error("the script has what would end it");

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
