"""Writes the ETDump that `reads_dumps.rs` reads: two runs of a small model, with all values, in
ExecuTorch's own runtime.

    python make.py

Requires the packages `executorch` and `torch`.
"""

from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1.0).relu().sum(1)


def main() -> None:
    x = torch.tensor([[1.0, -4.0], [2.0, 3.0]])
    program = to_edge_transform_and_lower(torch.export.export(Model().eval(), (x,))).to_executorch()
    folder = Path(__file__).parent
    runtime = Runtime.get().load_program(program.buffer, enable_etdump=True, debug_buffer_size=1024)
    method = runtime.load_method("forward")
    for _ in range(2):
        method.execute([x])
    runtime.write_etdump_result_to_file(
        str(folder / "executorch.etdp"), str(folder / "executorch.bin")
    )


if __name__ == "__main__":
    main()
