"""A small CNN trained on scikit-learn's handwritten digits, exported in every form of a `.pte`.

It trains in seconds and recognises more than 97 % of the held-out images, so a person can check the
runtime's answers.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from common import BF16, F16, FIXTURES, Fixture, Manifest, Tolerance, seed
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from torch.export import Dim

FOLDER = "digits"
BRIGHTEST = 16.0
SHOWN = 8
"""Number of held-out images in each bundled program."""


class DigitsCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, kernel_size=3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training and held-out images (N x 1 x 8 x 8, values from 0 to 1) and their labels."""
    digits = load_digits()
    images = (digits.images / BRIGHTEST).astype(np.float32)[:, None]
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target, test_size=0.25, random_state=0, stratify=digits.target
    )
    return tuple(plain_strides(torch.from_numpy(a)) for a in (train_x, test_x, train_y, test_y))


def plain_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Sets row-major strides in dims of size 1 too, where NumPy's strides are arbitrary."""
    return tensor.clone(memory_format=torch.contiguous_format)


def train(images: torch.Tensor, labels: torch.Tensor, epochs: int = 30) -> DigitsCnn:
    model = DigitsCnn().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()
    return model.eval()


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def quantize(model: nn.Module, calibration: torch.Tensor) -> nn.Module:
    """Quantizes to int8, as quantize and dequantize operators around fp32 ones."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    import executorch.kernels.quantized  # noqa: F401  (registers the out variants)

    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=True)
    )
    graph = torch.export.export(copy.deepcopy(model), (calibration[:1],)).module()
    prepared = prepare_pt2e(graph, quantizer)
    with torch.no_grad():
        for image in calibration:
            prepared(image[None])
    return convert_pt2e(prepared)


def save_image(image: torch.Tensor, label: int) -> None:
    """Saves one held-out image twice: as the model's input and as a viewable image."""
    folder = FIXTURES / FOLDER
    np.save(folder / f"image_{label}.npy", image[None].numpy())
    grey = (image[0] * 255.0).round().to(torch.uint8).numpy()
    Image.fromarray(grey, mode="L").save(folder / f"image_{label}.png")
    (folder / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)))


def save_held_out(images: torch.Tensor, labels: torch.Tensor, count: int = 20) -> None:
    """Saves enough images to check recognition, and their labels, one per line."""
    folder = FIXTURES / FOLDER
    np.save(folder / "held_out.npy", images[:count].numpy())
    (folder / "held_out_labels.txt").write_text(
        "".join(f"{label}\n" for label in labels[:count].tolist())
    )


def one_by_one(images: torch.Tensor) -> list[tuple[torch.Tensor]]:
    return [(image[None].clone(),) for image in images[:SHOWN]]


def largest_logit(model: nn.Module, images: torch.Tensor) -> float:
    with torch.no_grad():
        return model(images).abs().max().item()


def fixtures(model: DigitsCnn, train_x: torch.Tensor, test_x: torch.Tensor) -> list[Fixture]:
    cases = one_by_one(test_x)
    biggest = largest_logit(model, test_x)
    half = Tolerance(F16.rtol, 0.03)
    bf16 = Tolerance(BF16.rtol, 0.15)
    quanta = Tolerance(0.0, round(3 * 2 * biggest / 255, 2))
    last = torch.channels_last
    odd = [(image.as_strided(image.shape, (8, 64, 8, 1)),) for (image,) in cases]
    in_last = [(image.contiguous(memory_format=last),) for (image,) in cases]
    unplanned = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    batch = {0: Dim("batch", min=1, max=16)}
    batches = [(test_x[:4].clone(),), (test_x[4:5].clone(),), (test_x[5:21].clone(),)]

    def some_weights(node: torch.fx.Node) -> str | None:
        return "classifier" if "classifier" in node.name else None

    def as_(dtype: torch.dtype) -> nn.Module:
        return copy.deepcopy(model).to(dtype)

    def fixture(name: str, module: nn.Module, inputs: list, **options) -> Fixture:
        return Fixture.forward(f"{FOLDER}/{name}", module, inputs, **options)

    return [
        fixture("digits", model, cases, plain=True),
        fixture("digits_half", as_(torch.half), [(x.half(),) for (x,) in cases], tolerance=half),
        fixture(
            "digits_bf16", as_(torch.bfloat16), [(x.bfloat16(),) for (x,) in cases], tolerance=bf16
        ),
        fixture("digits_int8", quantize(model, train_x[:64]), cases, tolerance=quanta, plain=True),
        fixture("digits_channels_last", copy.deepcopy(model).to(memory_format=last), in_last),
        fixture(
            "digits_odd_dim_order",
            model,
            odd,
            note="the input's dim order is not canonical, and means the same as if it were",
        ),
        fixture("digits_dynamic_batch", model, batches, dynamic_shapes=(batch,)),
        fixture(
            "digits_unplanned_io",
            model,
            cases,
            config=ExecutorchBackendConfig(memory_planning_pass=unplanned),
            note="inputs and outputs are not memory planned",
        ),
        fixture(
            "digits_external",
            model,
            cases,
            plain=True,
            config=ExecutorchBackendConfig(external_constants=True),
        ),
        fixture(
            "digits_external_some",
            model,
            cases,
            plain=True,
            config=ExecutorchBackendConfig(external_constants=some_weights),
            note="only the classifier's weights are in the .ptd",
        ),
        fixture(
            "digits_align_4096",
            model,
            cases,
            plain=True,
            config=ExecutorchBackendConfig(segment_alignment=4096),
        ),
    ]


def main() -> None:
    seed(0)
    train_x, test_x, train_y, test_y = load()
    model = train(train_x, train_y)
    held_out = accuracy(model, test_x, test_y)
    print(f"digits: {held_out:.4f} of {len(test_x)} held-out images")
    assert held_out > 0.97, "the network learned too little"

    manifest = Manifest("digits")
    manifest.write_all(fixtures(model, train_x, test_x))
    manifest.save()
    save_image(test_x[0], int(test_y[0]))
    save_held_out(test_x, test_y)


if __name__ == "__main__":
    main()
