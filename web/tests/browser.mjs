// Helpers of the tests that need a browser.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";

/** Starts a browser, by its name or path. */
export async function launch(name) {
  const args = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
  return chromium.launch({ executablePath: name.includes("/") ? name : await which(name), args });
}

async function which(name) {
  for (const folder of process.env.PATH.split(":")) {
    const path = join(folder, name);
    if (await readFile(path).then(() => true, () => false)) return path;
  }
  throw new Error(`${name} is not in PATH`);
}

const TYPES = { js: "text/javascript", wasm: "application/wasm" };

/** Opens an empty page of a server that has the package, below `/dist/`, and files by other names. */
export async function served(context, packageFolder, files = {}) {
  const page = await context.newPage();
  await page.route("https://torchlet.test/**", async (route) => {
    const path = new URL(route.request().url()).pathname;
    if (path === "/") return route.fulfill({ contentType: "text/html", body: "<!doctype html><title>test</title>" });
    const body = await readFile(files[path] ?? join(packageFolder, path)).catch(() => undefined);
    if (!body) return route.fulfill({ status: 404 });
    await route.fulfill({ contentType: TYPES[path.split(".").pop()] ?? "application/octet-stream", body });
  });
  await page.goto("https://torchlet.test/");
  return page;
}
