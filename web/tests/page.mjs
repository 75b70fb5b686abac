// Drives the page in a browser, from the file and offline:
// node page.mjs --package FOLDER --page FILE --browser PROGRAM [--model FILE] [--pictures FOLDER]
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { launch, served } from "./browser.mjs";

const { values: options } = parseArgs({ options: { package: { type: "string" }, page: { type: "string" }, browser: { type: "string" }, model: { type: "string" }, pictures: { type: "string" } } });
const fixture = (name) => fileURLToPath(new URL(`../../tests/fixtures/${name}`, import.meta.url));
const digits = await readFile(fixture("digits/digits.pte"));
const SIZES = { desk: { width: 1280, height: 860 }, phone: { width: 390, height: 780 } };
/* Strokes on a canvas of 100 by 100, as a hand draws the digits. */
const STROKES = {
  0: [[[50, 12], [32, 20], [25, 50], [32, 80], [50, 88], [68, 80], [75, 50], [68, 20], [50, 12]]],
  1: [[[40, 25], [52, 12], [52, 88]]],
  7: [[[25, 14], [75, 14], [60, 45], [45, 88]], [[38, 50], [70, 50]]],
};

const browser = await launch(options.browser);
try {
  await inPages();
  for (const [name, viewport] of Object.entries(SIZES)) for (const colorScheme of ["light", "dark"]) await drive(name, viewport, colorScheme);
} finally {
  await browser.close();
}

/** Tests the package, loaded from a server, with and without relaxed SIMD. */
async function inPages() {
  for (const relaxed of [true, false]) {
    const context = await browser.newContext();
    if (!relaxed) await context.addInitScript("WebAssembly.validate = () => false");
    const page = await served(context, options.package, { "/digits.bpte": fixture("digits/digits.bpte") });
    const fetched = [];
    page.on("request", (request) => fetched.push(new URL(request.url()).pathname));
    const apart = await page.evaluate(`(async () => {
      const { load, hasRelaxedSimd } = await import("/dist/index.js");
      if (hasRelaxedSimd() !== ${relaxed}) throw new Error("relaxed SIMD is ${relaxed ? "missing" : "there"}");
      const program = await load(await (await fetch("/digits.bpte")).arrayBuffer());
      const { inputs, expected } = program.testCase("forward", 0);
      const [found] = program.forward(...inputs);
      return Math.max(...found.data.map((value, at) => Math.abs(value - expected[0].data[at])));
    })()`);
    assert.ok(apart < 1e-4, `${apart} from PyTorch`);
    assert.equal(fetched.includes("/dist/torchlet.relaxed"), relaxed);
    const [same, refused] = await page.evaluate(`(async () => {
      const { loadInWorkers } = await import("/dist/workers.js");
      const { load } = await import("/dist/index.js");
      const bytes = await (await fetch("/digits.bpte")).arrayBuffer();
      const [pool, program] = [await loadInWorkers(bytes, { workers: 2 }), await load(bytes)];
      const images = Array.from({ length: 20 }, (_, seed) => Float32Array.from({ length: 64 }, (_, at) => (at * seed) % 17));
      const found = await Promise.all(images.map((image) => pool.forward(image)));
      const same = images.every((image, at) => String(found[at][0].data) === String(program.forward(image)[0].data));
      const refused = await pool.forward(new Float32Array(3)).catch((error) => error.name + ": " + error.message);
      pool.dispose();
      return [same, refused];
    })()`);
    assert.ok(same, "workers compute something else");
    assert.match(refused, /^TorchletError: ./);
    await context.close();
  }
}

/** Waits until a condition holds. */
async function until(condition) {
  for (const end = performance.now() + 30_000; !(await condition()); await new Promise((done) => setTimeout(done, 20))) {
    if (performance.now() > end) throw new Error(`never: ${condition}`);
  }
}

async function drive(name, viewport, colorScheme) {
  const isPhone = name === "phone";
  const context = await browser.newContext({ viewport, colorScheme, offline: true, hasTouch: isPhone, isMobile: isPhone });
  // Once as in an engine without relaxed SIMD.
  const relaxed = !(isPhone && colorScheme === "dark");
  if (!relaxed) await context.addInitScript("WebAssembly.validate = () => false");
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  page.on("request", (request) => /^(file|blob|data|about):/.test(request.url()) || faults.push(`asks for ${request.url()}`));
  const start = performance.now();
  await page.goto(pathToFileURL(options.page).href);
  await page.waitForSelector("#run:not([hidden])");
  const loaded = performance.now() - start;
  const open = async (files) => page.setInputFiles("#file", files);
  const text = (selector) => page.innerText(selector);
  const picture = async (what) => {
    const [wide, widest] = await page.evaluate("[document.documentElement.scrollWidth, [...document.querySelectorAll('*')].filter((it) => it.getBoundingClientRect().right > innerWidth + 0.5).map((it) => it.tagName + '.' + it.className)]");
    assert.ok(wide <= viewport.width, `${what}: ${wide} points are wider than the screen: ${widest}`);
    if (options.pictures) {
      await mkdir(options.pictures, { recursive: true });
      // Browsers do not paint frames that are off screen.
      for (const frame of await page.locator("iframe:visible").all()) await frame.scrollIntoViewIfNeeded();
      await page.waitForTimeout(500);
      await page.screenshot({ path: join(options.pictures, `${name}_${colorScheme}_${what}.png`), fullPage: true });
    }
  };

  // The digits model opens first, with a canvas.
  assert.equal(await text("#name"), "digits.pte");
  assert.match(await text("#facts"), relaxed ? /128 bits, relaxed/ : /128 bits\s/);
  for (const [digit, strokes] of Object.entries(STROKES)) {
    await page.click("text=Clear");
    const box = await page.locator("canvas.draw").boundingBox();
    const at = ([x, y]) => [box.x + (x / 100) * box.width, box.y + (y / 100) * box.height];
    for (const [first, ...rest] of strokes) {
      await page.mouse.move(...at(first));
      await page.mouse.down();
      for (const point of rest) await page.mouse.move(...at(point), { steps: 6 });
      await page.mouse.up();
    }
    assert.equal(await text(".best b"), digit, `a drawn ${digit}`);
  }
  await picture("digits");
  await page.click("text=Time it");
  await until(() => page.evaluate("/fastest/.test(document.querySelector('#took').textContent)"));

  // An image and labels.
  const labels = { name: "labels.txt", mimeType: "text/plain", buffer: Buffer.from([..."abcdefghij"].join("\n")) };
  await open([{ name: "d.pte", mimeType: "", buffer: digits }, labels]);
  await until(() => page.evaluate("document.querySelector('#name').textContent === 'd.pte'"));
  await page.selectOption("[aria-label='source of input 0']", "image");
  await page.click("#go");
  assert.match(await text("#error"), /choose an image first/);
  await page.setInputFiles("#inputs input[type=file]", fixture("digits/image_2.png"));
  await page.waitForSelector(".best b");
  assert.equal(await text(".best b"), "c");
  assert.equal(await page.isHidden("#error"), true);

  // The page of the program's contents.
  await page.click("text=Look inside");
  const inside = page.frameLocator("iframe");
  await inside.locator("nav button").first().waitFor();
  assert.match(await inside.locator("header h1").innerText(), /d\.pte/);
  await inside.locator("nav button:has-text('Memory')").click();
  await inside.locator("nav button:has-text('Graph')").click();
  await picture("inside");

  // A file with a test case.
  await open([fixture("models/bert.bpte")]);
  await until(() => page.evaluate("document.querySelector('#name').textContent === 'bert.bpte'"));
  await page.click("text=Run the file's test case");
  assert.match(await text("#outputs"), /difference from PyTorch/);
  const apart = Number((await text("#outputs")).match(/difference from PyTorch: (\S+)/)[1]);
  assert.ok(apart < 1e-4, `${apart} from PyTorch`);
  await page.click("#go");
  assert.match(await text("#took"), /Took/);

  // A damaged file, a file of another type, and a large program: the page
  // reports errors and stays usable.
  await open([{ name: "damaged.pte", mimeType: "", buffer: digits.subarray(0, 3000) }]);
  await page.waitForSelector("#error:not([hidden])");
  assert.match(await text("#error"), /^damaged\.pte: ./);
  await picture("damaged");
  await open([{ name: "notes.pdf", mimeType: "", buffer: Buffer.from("notes") }]);
  await until(() => page.evaluate("/expected a program/.test(document.querySelector('#error').textContent)"));
  await open([{ name: "large.pte", mimeType: "", buffer: Buffer.concat([digits, Buffer.alloc(15e6)]) }]);
  await until(() => page.evaluate("document.querySelector('#name').textContent === 'large.pte'"));
  assert.match(await text("#facts"), /15\.\d MB/);
  const models = options.model ? [options.model] : [];
  for (const model of models) {
    const begin = performance.now();
    await open([model]);
    await until(() => page.evaluate("!['large.pte', ''].includes(document.querySelector('#name').textContent)"));
    const took = performance.now() - begin;
    await page.selectOption("[aria-label='source of input 0']", "random numbers");
    await page.click("text=Time it");
    await until(() => page.evaluate("/fastest/.test(document.querySelector('#took').textContent)"));
    console.log(`${model}: opened in ${took.toFixed(0)} ms; ${await text("#took")}`);
    await page.click("#go");
    await page.click("text=Look inside");
    await inside.locator("nav button").first().waitFor();
    await picture("model");
  }
  await page.click("#digits");
  await until(() => page.evaluate("document.querySelector('#name').textContent === 'digits.pte'"));
  assert.deepEqual(faults, [], `${name}, ${colorScheme}`);
  console.log(`${name}, ${colorScheme}: ready in ${loaded.toFixed(0)} ms`);
  await context.close();
}
