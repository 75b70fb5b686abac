"""Compiles the C++ snippets of ExecuTorch's documentation against torchlet's headers, with only the
changes in the table of PORTING.md.

    python capi/tests/tutorials.py EXECUTORCH
    python capi/tests/tutorials.py EXECUTORCH --executorch INCLUDE

EXECUTORCH is a checkout of ExecuTorch's repository. With --executorch, compiles the unchanged
snippets against ExecuTorch's headers.

Snippets refer to declarations that the surrounding text describes: CONTEXT and PARAMETERS declare
them for all snippets. MENDED replaces placeholders and mistakes that no compiler accepts.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGES = [
    "extension-module",
    "extension-tensor",
    "running-a-model-cpp-tutorial",
    "using-executorch-cpp",
]

# PORTING.md's table.
TABLE = [
    (r"#include <executorch/[^>]*>", "#include <torchlet.hpp>"),
    (r"\bexecutorch::", "torchlet::"),
    (r"\bclone_tensor_ptr_to\((\w+), [\w:]*DeviceType::\w+\)", r"clone_tensor_ptr(\1)"),
]

HEADERS = """
#include <array>
#include <cassert>
#include <cstdio>
#include <memory>
#include <vector>
#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/executor/program.h>
"""

CONTEXT = """
using namespace ::executorch::extension;
namespace runtime = ::executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::aten::TensorShapeDynamism;
"""

# Variables that snippets refer to, in an outer scope, so that snippets can shadow them.
PARAMETERS = """
Module& module, TensorPtr tensor, TensorPtr tensor_value, TensorPtr output_tensor, TensorPtr some_tensor,
runtime::EValue input_value, runtime::EValue input_value_0, runtime::EValue input_value_1,
runtime::EValue input1, runtime::EValue input2, runtime::EValue input3, size_t input_index, size_t output_index
"""

MENDED = [
    (r"= /\* some existing tensor \*/;", "= SOME;"),
    (r"= /\* create (?:a|another) TensorPtr \*/", "= SOME;"),
    (r"= /\* raw data \*/;", "= std::vector<uint8_t>(24);"),
    (r"make_tensor_ptr\(/\* \.\.\. \*/\)", "make_tensor_ptr({1}, {1.0f})"),
    (r"Tensor original_tensor = SOME", "Tensor original_tensor = *some_tensor"),
    (r"SOME", "some_tensor"),
    (r"\bDeviceType::", "executorch::aten::DeviceType::"),
    # The text means an array, and memory that it has set up before.
    (r"Tensor::DimOrderType dim_order =", "Tensor::DimOrderType dim_order[] ="),
    (r"load_method\(method_name\)", "load_method(method_name, &memory_manager)"),
    (
        r"MmapUseMlock, std::make_unique<ETDumpGen>",
        "MmapUseMlock, std::make_unique<executorch::etdump::ETDumpGen>",
    ),
    (r"dynamic_cast<ETDumpGen\*>", "dynamic_cast<executorch::etdump::ETDumpGen*>"),
]


def pieces(text: str) -> list[str]:
    return [
        match[1]
        for match in re.finditer(r"``` ?(?:cpp|c\+\+)\n(.*?)```", text, re.DOTALL | re.IGNORECASE)
    ]


def unit(piece: str) -> str:
    """Wraps a snippet in a translation unit: includes and usings precede the context, the rest
    becomes a function body."""
    head = [line for line in piece.splitlines() if re.match(r"\s*(#include|using )", line)]
    body = [line for line in piece.splitlines() if not re.match(r"\s*(#include|using )", line)]
    includes = [line for line in head if "#include" in line]
    uses = [line for line in head if "#include" not in line]
    code = "\n".join(body)
    if "int main(" not in code:
        code = f"void piece({PARAMETERS}) {{ {{\n{code}\n}} }}"
    return "\n".join([HEADERS, *includes, CONTEXT, *uses, code, ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="ExecuTorch's repository")
    parser.add_argument(
        "--executorch",
        type=Path,
        help="the folder of ExecuTorch's headers: compile the code unchanged, against them",
    )
    parser.add_argument("--compiler", default="c++")
    options = parser.parse_args()
    headers = options.executorch or Path(__file__).parents[1] / "include"
    failed = count = 0
    for page in PAGES:
        found = pieces((options.checkout / "docs/source" / f"{page}.md").read_text())
        if page == "running-a-model-cpp-tutorial":
            found = ["\n".join(found)]
        for number, piece in enumerate(found):
            for pattern, replacement in MENDED:
                piece = re.sub(pattern, replacement, piece)
            code = unit(piece)
            for pattern, replacement in [] if options.executorch else TABLE:
                code = re.sub(pattern, replacement, code)
            with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
                file.write(code)
                file.flush()
                command = [
                    options.compiler,
                    "-std=c++17",
                    "-fsyntax-only",
                    "-w",
                    f"-I{headers}",
                    file.name,
                ]
                result = subprocess.run(command, capture_output=True, text=True)
            count += 1
            if result.returncode:
                failed += 1
                errors = [line for line in result.stderr.splitlines() if "error" in line]
                print(f"{page}, piece {number}:\n{piece}\n" + "\n".join(errors[:5]))
    print(f"{count - failed} of {count} pieces compile")
    sys.exit(failed > 0 or count == 0)


if __name__ == "__main__":
    main()
