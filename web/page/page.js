// The page: what is opened, what goes in, what comes out. `load` and the others are those of the package, which stands above.

const $ = (id) => document.getElementById(id);
const element = (tag, parent, text, className) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  parent?.append(made);
  return made;
};
const bytesText = (count) => (count < 1e3 ? `${count} bytes` : count < 1e6 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`);
const milliseconds = (time) => `${time < 10 ? time.toFixed(2) : time.toFixed(1)} ms`;
const described = (value) => (value.kind === "tensor" ? `${value.dynamic ? "at most " : ""}${value.dtype}[${value.shape.join(", ")}]` : value.kind);

/** The bytes of a part of the page. */
async function part(id) {
  const text = $(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).arrayBuffer();
}

const compiled = Promise.all([part("module"), part("relaxed")]).then(([module, relaxed]) => compile({ module, relaxed }));

/** What is open: the program, its file, and what its inputs are given. */
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
  if (!program && !texts.length) return fail(`${files.map((file) => file.name).join(", ") || "Nothing"}: expected a program, which ends in .pte or .bpte.`);
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
    ["Takes", info.inputs.map(described).join("; ") || "nothing"],
    ["Gives", info.outputs.map(described).join("; ") || "nothing"],
    ["Runs in", [...new Set(info.backends)].join(", ") || "kernels"],
    ["Vectors", hasRelaxedSimd() ? "128 bits, relaxed" : "128 bits"],
    ["Opened in", milliseconds(opened)],
    ["Memory", bytesText(program.memoryBytes)],
  ];
  if (program.info.origin.why) facts.push(["As exported, since", program.info.origin.why]);
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

/** Gives a place for an input, and what it gives when the program runs. */
function inputOf(slot, index) {
  const place = element("div", $("inputs"), undefined, "input");
  element("div", place, `Input ${index}: ${described(slot)}`, "faint");
  if (slot.kind === "int") return () => BigInt(slot.value);
  if (slot.kind !== "tensor") return () => slot.value;
  const { dtype } = slot;
  const shape = [...slot.shape];
  const size = shape.reduce((all, one) => all * one, 1);
  const sides = picture(shape, dtype);
  const row = element("div", place, undefined, "row");
  const how = element("select", row);
  how.setAttribute("aria-label", `what input ${index} is`);
  const choices = sides ? ["drawing", "image", "random numbers", "ones"] : ["random numbers", "ones"];
  how.append(...choices.map((choice) => element("option", undefined, choice)));
  const body = element("div", place);
  let source;
  const choose = () => {
    body.replaceChildren();
    source = { drawing: () => drawing(body, sides), image: () => image(body, sides), "random numbers": () => filled(Math.random), ones: () => filled(() => 1) }[how.value]();
  };
  const filled = (number) => () => elements(dtype, size, number);
  how.onchange = choose;
  choose();
  return () => ({ dtype, shape, data: source.length ? source(dtype) : source() });
}

/** Elements of a type from numbers from 0 to 1. Wide integers are often indices, of which 0 and 1 are nearly always valid. */
function elements(dtype, count, number) {
  const from = (array, of) => array.from({ length: count }, (_, at) => of(number(at)));
  switch (dtype) {
    case "float32": return from(Float32Array, (value) => value);
    case "float64": return from(Float64Array, (value) => value);
    case "float16": return from(Uint16Array, half);
    case "bfloat16": return from(Uint16Array, (value) => new Uint32Array(Float32Array.of(value).buffer)[0] >>> 16);
    case "uint8": return from(Uint8Array, (value) => Math.round(value * 255));
    case "int8": return from(Int8Array, (value) => Math.round(value * 127));
    case "int16": return from(Int16Array, Math.round);
    case "int32": return from(Int32Array, Math.round);
    case "int64": return from(BigInt64Array, (value) => BigInt(Math.round(value)));
    case "bool": return from(Uint8Array, Math.round);
    case "uint16": return from(Uint16Array, Math.round);
    case "uint32": return from(Uint32Array, Math.round);
    case "uint64": return from(BigUint64Array, (value) => BigInt(Math.round(value)));
    default: throw new TorchletError(`this page makes no numbers of the type ${dtype}`);
  }
}

/** The bits of a number from 0 to 1 in 16 bits. */
function half(value) {
  if (value < 2 ** -14) return Math.round(value * 2 ** 24);
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0];
  return (bits - 0x38000000 + 0xfff + ((bits >>> 13) & 1)) >>> 13;
}

/** Channels, height and width of an input that takes a picture. */
function picture(shape, dtype) {
  const [channels, height, width] = shape.slice(-3);
  const isOne = shape.length === 3 || (shape.length === 4 && shape[0] === 1);
  const fits = isOne && (channels === 1 || channels === 3) && height > 1 && width > 1 && height * width < 1 << 24;
  return fits && /^(float|uint8|bfloat)/.test(dtype) ? { channels, height, width } : undefined;
}

/** Planes of numbers from 0 to 1 of what is on a canvas. */
function planes(canvas, { channels, height, width }) {
  const { data } = canvas.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, width, height);
  const red = (at) => data[at * 4] / 255;
  if (channels === 1) return (at) => (0.299 * data[at * 4] + 0.587 * data[at * 4 + 1] + 0.114 * data[at * 4 + 2]) / 255 || red(at);
  return (at) => data[(at % (width * height)) * 4 + Math.floor(at / (width * height))] / 255;
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
    return [((event.clientX - box.left) * 256) / box.width, ((event.clientY - box.top) * 256) / box.height];
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
  canvas.onpointermove = (event) => last && event.getCoalescedEvents().concat(event).forEach((it) => line(at(it)));
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

/** Draws what is on one canvas on a smaller one: what is drawn fills it, since programs learn from pictures that do. */
function see(from, to) {
  const { data } = from.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, 256, 256);
  let [left, top, right, bottom] = [256, 256, -1, -1];
  for (let at = 0; at < 256 * 256; at++) {
    if (data[at * 4] < 64) continue;
    const [x, y] = [at % 256, at >> 8];
    [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
  }
  const context = to.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#000";
  context.fillRect(0, 0, to.width, to.height);
  if (right < 0) return;
  const side = Math.max(right - left, bottom - top) + 1;
  // By steps of a half, so that no pixel is left out on the way.
  let canvas = Object.assign(document.createElement("canvas"), { width: 256, height: 256 });
  let size = 256;
  const center = [(left + right + 1 - side) / 2, (top + bottom + 1 - side) / 2];
  canvas.getContext("2d").drawImage(from, ...center, side, side, 0, 0, 256, 256);
  const target = Math.min(to.width, to.height);
  while (size >= target * 2) {
    const smaller = Object.assign(document.createElement("canvas"), { width: size / 2, height: size / 2 });
    smaller.getContext("2d").drawImage(canvas, 0, 0, size / 2, size / 2);
    [canvas, size] = [smaller, size / 2];
  }
  context.drawImage(canvas, (to.width - target) / 2, (to.height - target) / 2, target, target);
}

/** A picture from a file: it fills the input, cut in the middle. */
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
  norm.setAttribute("aria-label", "numbers");
  norm.append(...["0 to 1", "-1 to 1", "as ImageNet"].map((text) => element("option", undefined, text)));
  let given = false;
  file.onchange = async () => {
    try {
      const bitmap = await createImageBitmap(file.files[0]);
      const scale = Math.max(sides.width / bitmap.width, sides.height / bitmap.height);
      const [width, height] = [bitmap.width * scale, bitmap.height * scale];
      const context = seen.getContext("2d", { willReadFrequently: true });
      context.imageSmoothingQuality = "high";
      context.drawImage(bitmap, (sides.width - width) / 2, (sides.height - height) / 2, width, height);
      given = true;
      run();
    } catch {
      fail(`${file.files[0]?.name}: not an image that this browser reads`);
    }
  };
  const [means, deviations] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];
  return (dtype) => {
    if (!given) throw new TorchletError("choose an image first");
    const plane = sides.width * sides.height;
    const plain = planes(seen, sides);
    const numbers = dtype === "uint8" ? plain : {
      "0 to 1": plain,
      "-1 to 1": (at) => plain(at) * 2 - 1,
      "as ImageNet": (at) => (plain(at) - means[Math.floor(at / plane)]) / deviations[Math.floor(at / plane)],
    }[norm.value];
    if (numbers !== plain && !/^float(32|64)$/.test(dtype)) throw new TorchletError(`an input of ${dtype} takes numbers from 0 to 1 here`);
    return elements(dtype, sides.channels * plane, numbers);
  };
}

/** A button for the test case that the file brings. */
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

/** Runs something, and shows what went wrong. */
function guarded(work) {
  fail("");
  try {
    work();
  } catch (error) {
    fail(error.message);
    // What ended in a trap is opened again.
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
    $("took").textContent = `${times.length} runs: fastest ${milliseconds(times[0])}, median ${milliseconds(times[times.length >> 1])}`;
  });
}

/** Shows outputs, and how far they are from what was expected. */
function show(outputs, took, expected) {
  $("took").textContent = `Took ${milliseconds(took)}.`;
  const place = $("outputs");
  place.className = "";
  place.replaceChildren();
  outputs.forEach((output, index) => {
    const isTensor = typeof output === "object";
    element("div", place, `Output ${index}: ${isTensor ? `${output.dtype}[${output.shape.join(", ")}]` : String(output)}`, "faint");
    if (!isTensor) return;
    const numbers = Array.from(output.data, Number);
    const last = output.shape.at(-1) ?? 1;
    if (/^float(32|64)$/.test(output.dtype) && last > 1 && last === output.data.length) showBest(place, numbers);
    else element("div", place, numbers.slice(0, 48).map((value) => (Number.isInteger(value) ? value : value.toPrecision(4))).join(", ") + (output.data.length > 48 ? ", …" : ""));
    const wanted = expected?.[index];
    if (wanted && /^float(32|64)$/.test(output.dtype)) {
      const apart = numbers.reduce((most, value, at) => Math.max(most, Math.abs(value - wanted.data[at])), 0);
      element("p", place, `At most ${apart.toExponential(1)} from what PyTorch had.`, "faint");
    }
  });
  if (!outputs.length) place.textContent = "It gives nothing.";
}

/** The largest of some numbers, as parts of a whole. */
function showBest(place, numbers) {
  // As arguments, there could be too many of them.
  const most = numbers.reduce((one, other) => Math.max(one, other), -Infinity);
  const powers = numbers.map((value) => Math.exp(value - most));
  const sum = powers.reduce((all, one) => all + one, 0);
  const order = numbers.map((_, at) => at).sort((one, other) => numbers[other] - numbers[one]).slice(0, 5);
  const table = element("div", place, undefined, "best");
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
    // Names come from the file: the frame can reach neither this page nor anything else.
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
addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  openFiles([...event.dataTransfer.files]);
});
openDigits();
