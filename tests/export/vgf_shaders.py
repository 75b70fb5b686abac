"""Writes VGF files with compute segments: `fixtures/vgf_shaders/<name>.vgf`.

    python vgf_shaders.py

Needs, beside what `vgf.py` needs: `ai_ml_sdk_vgf_library`, and the command `glslangValidator`.
The tests state the expected outputs.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Sequence

import vgfpy
from common import FIXTURES
from vgf import DType, Graph, compiled

FOLDER = FIXTURES / "vgf_shaders"
COMBINED_IMAGE_SAMPLER, STORAGE_IMAGE, STORAGE_BUFFER, TENSOR = 1, 3, 7, 1_000_460_000
R32_SFLOAT, R32G32B32A32_UINT, R32G32B32A32_SFLOAT = 100, 107, 109
COMPUTE_STAGE = 0x20
NEAREST, LINEAR, CLAMP_TO_EDGE = 0, 1, 2

# y = 2 x + c + p, with x and c in sets 0 and 1, and a push constant p.
SUM = """#version 450
layout(local_size_x = 8) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 1, binding = 2) readonly buffer C { float c[]; };
layout(set = 1, binding = 0) writeonly buffer Y { float y[]; };
layout(push_constant) uniform P { float p; };
void main() {
    uint at = gl_GlobalInvocationID.x;
    if (at < y.length()) y[at] = 2.0 * x[at] + c[at] + p;
}
"""

# Twice the size, as the sampler interpolates.
LARGER = """#version 450
layout(local_size_x = 4, local_size_y = 4) in;
layout(set = 0, binding = 0) uniform sampler2D from;
layout(set = 0, binding = 1, rgba32f) uniform writeonly image2D to;
void main() {
    ivec2 at = ivec2(gl_GlobalInvocationID.xy);
    ivec2 size = imageSize(to);
    if (at.x < size.x && at.y < size.y)
        imageStore(to, at, texture(from, (vec2(at) + 0.5) / vec2(size)));
}
"""

LARGER_INTEGERS = LARGER.replace("sampler2D", "usampler2D")

# Each element plus its index.
COUNT = """#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { float y[]; };
void main() {
    uint at = gl_GlobalInvocationID.x;
    if (at < y.length()) y[at] = x[at] + float(at);
}
"""

# The transposed image.
TURN = """#version 450
layout(local_size_x = 4, local_size_y = 4) in;
layout(set = 0, binding = 0, rgba32f) uniform readonly image2D from;
layout(set = 0, binding = 1, rgba32f) uniform writeonly image2D to;
void main() {
    ivec2 at = ivec2(gl_GlobalInvocationID.xy);
    imageStore(to, at.yx, imageLoad(from, at));
}
"""

# The image as it is, and as integers.
SAME = """#version 450
layout(local_size_x = 4, local_size_y = 4) in;
layout(set = 0, binding = 0, rgba32f) uniform readonly image2D from;
layout(set = 0, binding = 1, rgba32f) uniform writeonly image2D to;
void main() {
    ivec2 at = ivec2(gl_GlobalInvocationID.xy);
    imageStore(to, at, imageLoad(from, at));
}
"""
SAME_INTEGERS = SAME.replace("rgba32f", "rgba32ui").replace("image2D", "uimage2D")

# Adds to what is there.
UPDATE = """#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Y { float y[]; };
void main() {
    uint at = gl_GlobalInvocationID.x;
    if (at < y.length()) y[at] += 1000.0;
}
"""

# Reversed through shared memory, with changed signs. Push constants end at byte 60.
SHARED = """#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform P { float p[5]; layout(offset = 32) mat2x3 m; };
struct Part { bool odd; vec3 of; };
shared Part parts[96];
void main() {
    uint at = gl_LocalInvocationIndex;
    parts[at] = Part((at & 1u) == 1u, vec3(x[at], p[at & 3u], m[1][2]));
    barrier();
    Part it = parts[gl_WorkGroupSize.x - 1u - at];
    y[at] = (it.odd ? -1.0 : 1.0) * (it.of.x + it.of.y + it.of.z);
}
"""

# Adds to what is there, which is an input for the segment, and writes the sum.
INPUT_UPDATE = """#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer X { float x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { float y[]; };
void main() {
    uint at = gl_GlobalInvocationID.x;
    if (at >= y.length()) return;
    x[at] += 1000.0;
    y[at] = x[at];
}
"""

# Reversed through an array of each invocation.
LOCAL = """#version 450
layout(local_size_x = 1) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { float y[]; };
float all[80];
void main() {
    uint n = y.length();
    for (uint at = 0u; at < n; ++at) all[at] = x[at];
    for (uint at = 0u; at < n; ++at) y[at] = all[n - 1u - at];
}
"""


def words(glsl: str) -> list[int]:
    """Compiles a compute shader to SPIR-V."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "shader.comp"), Path(folder, "shader.spv")
        source.write_text(glsl)
        command = ["glslangValidator", "-V", "--target-env", "vulkan1.1", source, "-o", target]
        subprocess.run(command, check=True, capture_output=True)
        code = target.read_bytes()
    return list(struct.unpack(f"<{len(code) // 4}I", code))


class File:
    """A VGF file under construction."""

    def __init__(self) -> None:
        self.encoder = vgfpy.CreateEncoder(vk_header_version())
        self.ends: dict[str, list[Any]] = {"inputs": [], "outputs": []}

    def resource(
        self, kind: str, descriptor: int, of: int, shape: Sequence[int], alias: int | None = None
    ) -> Any:
        add = getattr(self.encoder, f"Add{kind}Resource")
        made = add(descriptor, of, list(shape), [], alias)
        if kind in ("Input", "Output"):
            slots = self.ends[f"{kind.lower()}s"]
            slots.append(self.encoder.AddBindingSlot(len(slots), made))
        return made

    def segment(
        self,
        module: Any,
        name: str,
        bound: Sequence[tuple[int, int, Any, bool]],
        groups: Sequence[int] = (0, 0, 0),
        push: int = 0,
    ) -> None:
        """Bindings are set, binding, resource, and whether it is written."""
        add = self.encoder.AddBindingSlot
        slots = [(at, add(binding, it), out) for at, binding, it, out in bound]
        sets = [
            self.encoder.AddDescriptorSetInfo([slot for at, slot, _ in slots if at == number])
            for number in range(max(at for at, _, _ in slots) + 1)
        ]
        ranges = [self.encoder.AddPushConstRange(COMPUTE_STAGE, 0, push)] if push else []
        self.encoder.AddSegmentInfo(
            module,
            name,
            sets,
            [slot for _, slot, out in slots if not out],
            [slot for _, slot, out in slots if out],
            [],
            list(groups),
            ranges,
        )

    def shader(self, name: str, glsl: str) -> Any:
        return self.encoder.AddModule(vgfpy.ModuleType.Compute, name, "main", words(glsl))

    def write(self, name: str) -> None:
        self.encoder.AddModelSequenceInputsOutputs(
            self.ends["inputs"], [], self.ends["outputs"], []
        )
        self.encoder.Finish()
        FOLDER.mkdir(parents=True, exist_ok=True)
        with open(FOLDER / f"{name}.vgf", "wb") as file:
            assert self.encoder.WriteTo(file)


def vk_header_version() -> int:
    return 0


def buffers() -> None:
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [3, 5])
    c = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [3, 5])
    y = file.resource("Output", STORAGE_BUFFER, R32_SFLOAT, [3, 5])
    bound = [(0, 0, x, False), (1, 2, c, False), (1, 0, y, True)]
    file.segment(file.shader("sum", SUM), "add_twice", bound, [2, 1, 1], push=4)
    file.write("buffers")


def image() -> None:
    file = File()
    of = R32G32B32A32_SFLOAT
    x = file.resource("Input", COMBINED_IMAGE_SAMPLER, of, [1, 3, 4, 4])
    file.encoder.AddSamplerConfig(x, NEAREST, NEAREST, CLAMP_TO_EDGE, CLAMP_TO_EDGE, 0)
    y = file.resource("Output", STORAGE_IMAGE, of, [1, 6, 8, 4])
    bound = [(0, 0, x, False), (0, 1, y, True)]
    file.segment(file.shader("larger", LARGER), "larger", bound, [2, 2, 1])
    file.write("image")


def alias() -> None:
    """A graph whose tensor is a buffer of the next shader, whose buffer is an image of the last."""
    graph = Graph("alias")
    x = graph.input((4, 4, 4), DType.FP32)
    graph.op("ABS", [x], [((4, 4, 4), DType.FP32)])
    vgf, _ = compiled(graph)
    header = vgfpy.CreateHeaderDecoder(vgf, vgfpy.HeaderSize(), len(vgf))
    part = vgf[header.GetModuleTableOffset() :][: header.GetModuleTableSize()]
    modules = vgfpy.CreateModuleTableDecoder(part, len(part))
    file = File()
    code = list(memoryview(modules.getModuleCode(0)).cast("B").cast("I"))
    entry = modules.getModuleEntryPoint(0)
    module = file.encoder.AddModule(vgfpy.ModuleType.Graph, "absolute", entry, code)
    x = file.resource("Input", TENSOR, R32_SFLOAT, [4, 4, 4])
    y = file.resource("Intermediate", TENSOR, R32_SFLOAT, [4, 4, 4], alias=0)
    as_buffer = file.resource("Intermediate", STORAGE_BUFFER, R32_SFLOAT, [64], alias=0)
    counted = file.resource("Intermediate", STORAGE_BUFFER, R32_SFLOAT, [64], alias=7)
    of = R32G32B32A32_SFLOAT
    as_image = file.resource("Intermediate", STORAGE_IMAGE, of, [4, 4, 4], alias=7)
    out = file.resource("Output", STORAGE_IMAGE, of, [4, 4, 4])
    file.segment(module, "absolute", [(0, 0, x, False), (0, 1, y, True)])
    bound = [(0, 0, as_buffer, False), (0, 1, counted, True)]
    file.segment(file.shader("count", COUNT), "count", bound, [1, 1, 1])
    bound = [(0, 0, as_image, False), (0, 1, out, True)]
    file.segment(file.shader("turn", TURN), "turn", bound, [1, 1, 1])
    file.write("alias")


def source() -> None:
    """A shader in GLSL."""
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64])
    y = file.resource("Output", STORAGE_BUFFER, R32_SFLOAT, [64])
    kind = vgfpy.ModuleType.Compute
    module = file.encoder.AddModule(kind, "count", "main", vgfpy.ShaderType.Glsl, COUNT)
    file.segment(module, "count", [(0, 0, x, False), (0, 1, y, True)], [1, 1, 1])
    file.write("glsl")


def parts() -> None:
    """Files for one rule each."""
    of = R32G32B32A32_SFLOAT

    # The result of a shader as a buffer is the image of the next one.
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [4, 4, 4])
    as_buffer = file.resource("Intermediate", STORAGE_BUFFER, R32_SFLOAT, [4, 4, 4], alias=1)
    as_image = file.resource("Intermediate", STORAGE_IMAGE, of, [4, 4, 4], alias=1)
    out = file.resource("Output", STORAGE_IMAGE, of, [4, 4, 4])
    bound = [(0, 0, x, False), (0, 1, as_buffer, True)]
    file.segment(file.shader("count", COUNT), "count", bound, [1, 1, 1])
    bound = [(0, 0, as_image, False), (0, 1, out, True)]
    file.segment(file.shader("same", SAME), "same", bound, [1, 1, 1])
    file.write("buffer_then_image")

    # A storage image is then sampled, with linear filters that integers do not have.
    for name, of, same, sampled in (
        ("image_then_sampled", of, SAME, LARGER),
        ("filtered_integers", R32G32B32A32_UINT, SAME_INTEGERS, LARGER_INTEGERS),
    ):
        file = File()
        x = file.resource("Input", STORAGE_IMAGE, of, [4, 4, 4])
        stored = file.resource("Intermediate", STORAGE_IMAGE, of, [4, 4, 4], alias=1)
        read = file.resource("Intermediate", COMBINED_IMAGE_SAMPLER, of, [4, 4, 4], alias=1)
        file.encoder.AddSamplerConfig(read, LINEAR, LINEAR, CLAMP_TO_EDGE, CLAMP_TO_EDGE, 0)
        out = file.resource("Output", STORAGE_IMAGE, R32G32B32A32_SFLOAT, [4, 4, 4])
        bound = [(0, 0, x, False), (0, 1, stored, True)]
        file.segment(file.shader("same", same), "same", bound, [1, 1, 1])
        bound = [(0, 0, read, False), (0, 1, out, True)]
        file.segment(file.shader("sampled", sampled), "sampled", bound, [1, 1, 1])
        file.write(name)

    # A resource that is an input and an output.
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64])
    y = file.resource("Output", STORAGE_BUFFER, R32_SFLOAT, [64], alias=1)
    file.segment(
        file.shader("count", COUNT), "count", [(0, 0, x, False), (0, 1, y, True)], [1, 1, 1]
    )
    slot = file.encoder.AddBindingSlot(0, y)
    sets = [file.encoder.AddDescriptorSetInfo([slot])]
    module = file.shader("update", UPDATE)
    file.encoder.AddSegmentInfo(module, "update", sets, [slot], [slot], [], [1, 1, 1], [])
    file.write("update")

    # Two inputs of the model with the same memory.
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64], alias=3)
    file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64], alias=3)
    y = file.resource("Output", STORAGE_BUFFER, R32_SFLOAT, [64])
    file.segment(
        file.shader("count", COUNT), "count", [(0, 0, x, False), (0, 1, y, True)], [1, 1, 1]
    )
    file.write("aliased_inputs")

    # A shader writes a buffer that the segment lists as an input; the next one reads it.
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64])
    updated = file.resource("Intermediate", STORAGE_BUFFER, R32_SFLOAT, [64])
    y = file.resource("Output", STORAGE_BUFFER, R32_SFLOAT, [64])
    bound = [(0, 0, x, False), (0, 1, updated, True)]
    file.segment(file.shader("update", INPUT_UPDATE), "update", bound, [1, 1, 1])
    bound = [(0, 0, x, False), (1, 2, updated, False), (1, 0, y, True)]
    file.segment(file.shader("sum", SUM), "sum", bound, [8, 1, 1], push=4)
    file.write("written_input")

    # An array of each invocation.
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64])
    y = file.resource("Output", STORAGE_BUFFER, R32_SFLOAT, [64])
    bound = [(0, 0, x, False), (0, 1, y, True)]
    file.segment(file.shader("local", LOCAL), "local", bound, [1, 1, 1])
    file.write("local")

    # 64 MiB between two small buffers.
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64])
    between = file.resource("Intermediate", STORAGE_BUFFER, R32_SFLOAT, [1 << 24])
    y = file.resource("Output", STORAGE_BUFFER, R32_SFLOAT, [64])
    count = file.shader("count", COUNT)
    file.segment(count, "first", [(0, 0, x, False), (0, 1, between, True)], [1, 1, 1])
    file.segment(count, "second", [(0, 0, between, False), (0, 1, y, True)], [1, 1, 1])
    file.write("large")

    # 16 MiB as a buffer, then as an image.
    file = File()
    of = R32G32B32A32_SFLOAT
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64])
    shape = [1024, 1024, 4]
    as_buffer = file.resource("Intermediate", STORAGE_BUFFER, R32_SFLOAT, shape, alias=1)
    as_image = file.resource("Intermediate", STORAGE_IMAGE, of, shape, alias=1)
    y = file.resource("Output", STORAGE_IMAGE, of, [4, 4, 4])
    count = file.shader("count", COUNT)
    file.segment(count, "count", [(0, 0, x, False), (0, 1, as_buffer, True)], [1, 1, 1])
    bound = [(0, 0, as_image, False), (0, 1, y, True)]
    file.segment(file.shader("same", SAME), "same", bound, [1, 1, 1])
    file.write("large_image")

    # Shared memory, the size of the workgroup as a constant, and push constants.
    file = File()
    x = file.resource("Input", STORAGE_BUFFER, R32_SFLOAT, [64])
    y = file.resource("Output", STORAGE_BUFFER, R32_SFLOAT, [64])
    bound = [(0, 0, x, False), (0, 1, y, True)]
    file.segment(file.shader("shared", SHARED), "shared", bound, [1, 1, 1], push=60)
    file.write("shared")


if __name__ == "__main__":
    buffers()
    image()
    alias()
    source()
    parts()
