// The page: opens programs, edits inputs, shows outputs. The code of the package stands above this.

const $ = (id) => document.getElementById(id);
const element = (tag, parent, text, className) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  parent?.append(made);
  return made;
};
const bytesText = (count) => {
  if (count < 1e3) return `${count} bytes`;
  return count < 1e6 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
};
const milliseconds = (time) => `${time < 10 ? time.toFixed(2) : time.toFixed(1)} ms`;
const described = (value) => {
  if (value.kind !== "tensor") return value.kind;
  return `${value.dynamic ? "at most " : ""}${value.dtype}[${value.shape.join(", ")}]`;
};

/** Decodes a file that is embedded in the page: base64 of gzip. */
async function part(id) {
  const text = $(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).arrayBuffer();
}

const compiled = Promise.all([part("module"), part("relaxed")]).then(([module, relaxed]) =>
  compile({ module, relaxed }),
);

/** The open program, its file, and functions that create its inputs. */
let current;
let labels;

function fail(what) {
  $("error").textContent = what;
  $("error").hidden = !what;
}

async function openFiles(files) {
  const named = (end) => files.filter((file) => file.name.toLowerCase().endsWith(end));
  const [program] = files.filter((file) => /\.(pte|bpte)$/i.test(file.name));
  const texts = named(".txt");
  if (!program && !texts.length) {
    const names = files.map((file) => file.name).join(", ") || "no file";
    return fail(`${names}: expected a program, whose name ends in .pte or .bpte.`);
  }
  if (texts.length) labels = (await texts[0].text()).split(/\r?\n/).filter(Boolean);
  if (!program) return current && run();
  if (!texts.length) labels = undefined;
  const data = await Promise.all(named(".ptd").map((file) => file.arrayBuffer()));
  await openProgram(program.name, await program.arrayBuffer(), data);
}

async function openProgram(name, bytes, data = []) {
  fail("");
  for (const id of ["run", "result", "about"]) $(id).hidden = true;
  current?.program.dispose();
  current = undefined;
  try {
    const module = await compiled;
    const start = performance.now();
    const program = open(module, bytes, { data });
    const opened = performance.now() - start;
    current = { program, name, bytes, data, opened, inputs: [] };
  } catch (error) {
    return fail(`${name}: ${error.message}`);
  }
  const methods = current.program.methods;
  $("method").replaceChildren(...methods.map((method) => element("option", undefined, method)));
  $("method").hidden = methods.length < 2;
  $("method").value = methods.includes("forward") ? "forward" : methods[0];
  for (const id of ["run", "result", "about"]) $(id).hidden = false;
  showMethod();
}

const method = () => current.program.method($("method").value);

function showMethod() {
  const info = method();
  const { program, opened, bytes, name } = current;
  $("name").textContent = name;
  $("took").textContent = "";
  const outputs = $("outputs");
  outputs.replaceChildren("Nothing has run so far.");
  outputs.className = "faint";
  $("inside").replaceChildren();
  const facts = [
    ["File", bytesText(bytes.byteLength)],
    ["Methods", program.methods.join(", ")],
    ["Inputs", info.inputs.map(described).join("; ") || "none"],
    ["Outputs", info.outputs.map(described).join("; ") || "none"],
    ["Backends", [...new Set(info.backends)].join(", ") || "kernels"],
    ["SIMD", hasRelaxedSimd() ? "128 bits, relaxed" : "128 bits"],
    ["Loaded in", milliseconds(opened)],
    ["Memory", bytesText(program.memoryBytes)],
  ];
  if (program.info.origin.why) facts.push(["Not compiled", program.info.origin.why]);
  $("facts").replaceChildren(...facts.map(([what, value]) => {
    const row = element("tr");
    element("th", row, what).scope = "row";
    element("td", row, value);
    return row;
  }));
  $("inputs").replaceChildren();
  current.inputs = info.inputs.map((slot, index) => inputOf(slot, index));
  if (info.cases > 0) addCase();
}

/** Adds the controls of an input, and returns a function that creates the input. */
function inputOf(slot, index) {
  const parent = element("div", $("inputs"), undefined, "input");
  element("div", parent, `Input ${index}: ${described(slot)}`, "faint");
  if (slot.kind === "int") return () => BigInt(slot.value);
  if (slot.kind !== "tensor") return () => slot.value;
  const { dtype } = slot;
  const shape = [...slot.shape];
  const size = shape.reduce((all, one) => all * one, 1);
  const sides = imageSize(shape, dtype);
  const row = element("div", parent, undefined, "row");
  const how = element("select", row);
  how.setAttribute("aria-label", `source of input ${index}`);
  const choices = [...(sides ? ["drawing", "image"] : []), "random numbers", "ones"];
  how.append(...choices.map((choice) => element("option", undefined, choice)));
  const body = element("div", parent);
  let source;
  const choose = () => {
    body.replaceChildren();
    source = {
      drawing: () => drawing(body, sides),
      image: () => image(body, sides),
      "random numbers": () => filled(Math.random),
      ones: () => filled(() => 1),
    }[how.value]();
  };
  const filled = (number) => () => elements(dtype, size, number);
  how.onchange = choose;
  choose();
  return () => ({ dtype, shape, data: source.length ? source(dtype) : source() });
}

/**
 * Converts values from 0 to 1 to elements of a type. Wide integers are rounded to 0 or 1: they are
 * often indices, and these two are nearly always valid.
 */
function elements(dtype, count, number) {
  const from = (array, of) => array.from({ length: count }, (_, at) => of(number(at)));
  switch (dtype) {
    case "float32": return from(Float32Array, (value) => value);
    case "float64": return from(Float64Array, (value) => value);
    case "float16": return from(Uint16Array, half);
    case "bfloat16": return from(Uint16Array, (value) => bitsOf(value) >>> 16);
    case "uint8": return from(Uint8Array, (value) => Math.round(value * 255));
    case "int8": return from(Int8Array, (value) => Math.round(value * 127));
    case "int16": return from(Int16Array, Math.round);
    case "int32": return from(Int32Array, Math.round);
    case "int64": return from(BigInt64Array, (value) => BigInt(Math.round(value)));
    case "bool": return from(Uint8Array, Math.round);
    case "uint16": return from(Uint16Array, Math.round);
    case "uint32": return from(Uint32Array, Math.round);
    case "uint64": return from(BigUint64Array, (value) => BigInt(Math.round(value)));
    default: throw new TorchletError(`this page cannot create elements of type ${dtype}`);
  }
}

/** The bits of a float32. */
const bitsOf = (value) => new Uint32Array(Float32Array.of(value).buffer)[0];

/** The float16 bits of a value from 0 to 1. */
function half(value) {
  if (value < 2 ** -14) return Math.round(value * 2 ** 24);
  const bits = bitsOf(value);
  return (bits - 0x38000000 + 0xfff + ((bits >>> 13) & 1)) >>> 13;
}

/** Channels, height and width of an image input; undefined for any other input. */
function imageSize(shape, dtype) {
  const [channels, height, width] = shape.slice(-3);
  const isOne = shape.length === 3 || (shape.length === 4 && shape[0] === 1);
  const fits = height > 1 && width > 1 && height * width < 1 << 24;
  if (!isOne || !(channels === 1 || channels === 3) || !fits) return undefined;
  return /^(float|uint8|bfloat)/.test(dtype) ? { channels, height, width } : undefined;
}

/** The pixels of a canvas as a function from an index in CHW order to a value from 0 to 1. */
function planes(canvas, { channels, height, width }) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const { data } = context.getImageData(0, 0, width, height);
  const size = width * height;
  const channel = (at, index) => data[at * 4 + index];
  const luma = (at) => 0.299 * channel(at, 0) + 0.587 * channel(at, 1) + 0.114 * channel(at, 2);
  if (channels === 1) return (at) => luma(at) / 255;
  return (at) => channel(at % size, Math.floor(at / size)) / 255;
}

/** A canvas to draw on with a finger, a pen or a mouse. */
function drawing(body, sides) {
  const canvas = element("canvas", body, undefined, "draw");
  canvas.width = canvas.height = 256;
  canvas.setAttribute("aria-label", "draw here");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const row = element("div", body, undefined, "row");
  const clear = element("button", row, "Clear");
  const seen = element("canvas", row, undefined, "seen");
  seen.width = sides.width;
  seen.height = sides.height;
  seen.title = "what the program sees";
  let last;
  const wipe = () => {
    context.fillStyle = "#000";
    context.fillRect(0, 0, 256, 256);
    see(canvas, seen);
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return [(x * 256) / box.width, (y * 256) / box.height];
  };
  const line = (to) => {
    context.strokeStyle = "#fff";
    context.lineWidth = 26;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...to);
    context.stroke();
    last = to;
  };
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = at(event);
    line(last);
  };
  canvas.onpointermove = (event) =>
    last && event.getCoalescedEvents().concat(event).forEach((it) => line(at(it)));
  canvas.onpointerup = canvas.onpointercancel = () => {
    if (last) run();
    last = undefined;
  };
  clear.onclick = wipe;
  wipe();
  return (dtype) => {
    see(canvas, seen);
    return elements(dtype, sides.channels * sides.width * sides.height, planes(seen, sides));
  };
}

/**
 * Scales a drawing to a smaller canvas. Crops it to the drawn part, because programs are trained on
 * images that the subject fills.
 */
function see(from, to) {
  const source = from.getContext("2d", { willReadFrequently: true });
  const { data } = source.getImageData(0, 0, 256, 256);
  let [left, top, right, bottom] = [256, 256, -1, -1];
  for (let at = 0; at < 256 * 256; at++) {
    if (data[at * 4] < 64) continue;
    const [x, y] = [at % 256, at >> 8];
    [left, top] = [Math.min(left, x), Math.min(top, y)];
    [right, bottom] = [Math.max(right, x), Math.max(bottom, y)];
  }
  const context = to.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#000";
  context.fillRect(0, 0, to.width, to.height);
  if (right < 0) return;
  const side = Math.max(right - left, bottom - top) + 1;
  const square = (size) =>
    Object.assign(document.createElement("canvas"), { width: size, height: size });
  // Halves the size in each step, so that every pixel contributes to the result.
  let canvas = square(256);
  let size = 256;
  const center = [(left + right + 1 - side) / 2, (top + bottom + 1 - side) / 2];
  canvas.getContext("2d").drawImage(from, ...center, side, side, 0, 0, 256, 256);
  const target = Math.min(to.width, to.height);
  while (size >= target * 2) {
    const smaller = square(size / 2);
    smaller.getContext("2d").drawImage(canvas, 0, 0, size / 2, size / 2);
    [canvas, size] = [smaller, size / 2];
  }
  const [x, y] = [(to.width - target) / 2, (to.height - target) / 2];
  context.drawImage(canvas, x, y, target, target);
}

/** An image from a file, center-cropped to fill the input. */
function image(body, sides) {
  const row = element("div", body, undefined, "row");
  const label = element("label", row, "Choose an image", "file");
  const file = element("input", label);
  file.type = "file";
  file.accept = "image/*";
  const seen = element("canvas", row, undefined, "seen");
  seen.width = sides.width;
  seen.height = sides.height;
  const norm = element("select", row);
  norm.setAttribute("aria-label", "normalization");
  const norms = ["0 to 1", "-1 to 1", "as ImageNet"];
  norm.append(...norms.map((text) => element("option", undefined, text)));
  let given = false;
  file.onchange = async () => {
    try {
      const bitmap = await createImageBitmap(file.files[0]);
      const scale = Math.max(sides.width / bitmap.width, sides.height / bitmap.height);
      const [width, height] = [bitmap.width * scale, bitmap.height * scale];
      const context = seen.getContext("2d", { willReadFrequently: true });
      context.imageSmoothingQuality = "high";
      const [x, y] = [(sides.width - width) / 2, (sides.height - height) / 2];
      context.drawImage(bitmap, x, y, width, height);
      given = true;
      run();
    } catch {
      fail(`${file.files[0]?.name}: not an image that this browser can decode`);
    }
  };
  const [means, deviations] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];
  return (dtype) => {
    if (!given) throw new TorchletError("choose an image first");
    const plane = sides.width * sides.height;
    const plain = planes(seen, sides);
    const channel = (at) => Math.floor(at / plane);
    const pixels = dtype === "uint8" ? plain : {
      "0 to 1": plain,
      "-1 to 1": (at) => plain(at) * 2 - 1,
      "as ImageNet": (at) => (plain(at) - means[channel(at)]) / deviations[channel(at)],
    }[norm.value];
    if (pixels !== plain && !/^float(32|64)$/.test(dtype)) {
      throw new TorchletError(`this page supports only "0 to 1" for an input of type ${dtype}`);
    }
    return elements(dtype, sides.channels * plane, pixels);
  };
}

/** Adds a button that runs the file's first test case. */
function addCase() {
  const row = element("div", $("inputs"), undefined, "row");
  const button = element("button", row, "Run the file's test case");
  button.onclick = () => guarded(() => {
    const { inputs, expected } = current.program.testCase(method().name, 0);
    const start = performance.now();
    const outputs = current.program.execute(method().name, inputs);
    show(outputs, performance.now() - start, expected);
  });
}

/** Calls a function and shows its error, if any. */
function guarded(work) {
  fail("");
  try {
    work();
  } catch (error) {
    fail(error.message);
    // A program that trapped must be loaded again.
    if (error instanceof TrapError) {
      const { name, bytes, data } = current;
      openProgram(name, bytes, data).then(() => fail(error.message));
    }
  }
}

function run() {
  guarded(() => {
    const inputs = current.inputs.map((input) => input());
    const start = performance.now();
    const outputs = current.program.execute(method().name, inputs);
    show(outputs, performance.now() - start);
  });
}

function time() {
  guarded(() => {
    const inputs = current.inputs.map((input) => input());
    const times = [];
    const begin = performance.now();
    while (times.length < 3 || (performance.now() - begin < 1500 && times.length < 1000)) {
      const start = performance.now();
      current.program.execute(method().name, inputs);
      times.push(performance.now() - start);
    }
    times.sort((one, other) => one - other);
    const [fastest, median] = [times[0], times[times.length >> 1]].map(milliseconds);
    $("took").textContent = `${times.length} runs: fastest ${fastest}, median ${median}`;
  });
}

/** Shows outputs and their largest difference from the expected ones. */
function show(outputs, took, expected) {
  $("took").textContent = `Took ${milliseconds(took)}.`;
  const parent = $("outputs");
  parent.className = "";
  parent.replaceChildren();
  outputs.forEach((output, index) => {
    const isTensor = typeof output === "object";
    const text = isTensor ? `${output.dtype}[${output.shape.join(", ")}]` : String(output);
    element("div", parent, `Output ${index}: ${text}`, "faint");
    if (!isTensor) return;
    const numbers = Array.from(output.data, Number);
    const last = output.shape.at(-1) ?? 1;
    const isFloat = /^float(32|64)$/.test(output.dtype);
    const short = (value) => (Number.isInteger(value) ? value : value.toPrecision(4));
    if (isFloat && last > 1 && last === output.data.length) showBest(parent, numbers);
    else {
      const more = output.data.length > 48 ? ", …" : "";
      element("div", parent, numbers.slice(0, 48).map(short).join(", ") + more);
    }
    const wanted = expected?.[index];
    if (wanted && isFloat) {
      const differences = numbers.map((value, at) => Math.abs(value - wanted.data[at]));
      const largest = differences.reduce((one, other) => Math.max(one, other), 0);
      element("p", parent, `Largest difference from PyTorch: ${largest.toExponential(1)}`, "faint");
    }
  });
  if (!outputs.length) parent.textContent = "The method has no outputs.";
}

/** Shows the five largest values with their softmax. */
function showBest(parent, numbers) {
  // Math.max(...numbers) would exceed the number of arguments that engines support.
  const max = numbers.reduce((one, other) => Math.max(one, other), -Infinity);
  const powers = numbers.map((value) => Math.exp(value - max));
  const sum = powers.reduce((all, one) => all + one, 0);
  const indices = numbers.map((_, at) => at);
  const order = indices.sort((one, other) => numbers[other] - numbers[one]).slice(0, 5);
  const table = element("div", parent, undefined, "best");
  order.forEach((at, rank) => {
    const share = powers[at] / sum;
    element(rank ? "span" : "b", table, labels?.[at] ?? String(at));
    element("i", table).style.width = `${(share * 100).toFixed(1)}%`;
    element("span", table, `${(share * 100).toFixed(1)} %`);
  });
}

function lookInside() {
  guarded(() => {
    const { program, name, bytes } = current;
    const frame = document.createElement("iframe");
    // Names in it come from the file, so the frame is isolated from this page and the network.
    frame.sandbox = "allow-scripts";
    frame.title = `inside ${name}`;
    frame.srcdoc = program.page(name, bytes);
    $("inside").replaceChildren(frame);
  });
}

const openDigits = async () => {
  labels = undefined;
  await openProgram("digits.pte", await part("model"));
};
$("digits").onclick = openDigits;
$("file").onchange = () => openFiles([...$("file").files]);
$("method").onchange = showMethod;
$("go").onclick = run;
$("time").onclick = time;
$("inspect").onclick = lookInside;
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("over");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("over");
});
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  openFiles([...event.dataTransfer.files]);
});
openDigits();
