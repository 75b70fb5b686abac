"""Image tiles of Hugging Face's processors with Pillow, which `RgbImage::tiles` must match exactly.

Writes `llm/forms/images.json`: size and checksum of each tile, for each image and processor.
Requires `transformers`, `numpy`, and `pillow` 12 or older: version 13 may resize columns before
rows, which changes some pixels by one.
"""

import json
import pathlib
import zlib

import numpy
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
    GotOcr2ImageProcessorPil,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import (
    Idefics3ImageProcessorPil,
)
from transformers.models.mllama.image_processing_pil_mllama import (
    MllamaImageProcessorPil,
)

FORMS = pathlib.Path(__file__).resolve().parents[1] / "forms"
SIDE = 56
SIZES = [
    (56, 56),
    (57, 40),
    (20, 30),
    (300, 200),
    (211, 397),
    (640, 90),
    (33, 500),
    (112, 56),
    (2, 7),
    (5, 250),
    (450, 451),
]


def test_image(width, height):
    """An image of edges, gradients and noise, computed with integers only."""
    y, x, c = numpy.mgrid[0:height, 0:width, 0:3].astype(numpy.int64)
    points = (x * x * 7 + y * 13 * (c + 1) + x * y * 3 + 80 * ((x // 9 + y // 5) % 2)) % 256
    return Image.fromarray(points.astype(numpy.uint8), "RGB")


def described(tiles):
    """Size and checksum of each tile of shape `[3, height, width]`."""
    found = []
    for tile in tiles:
        tile = numpy.asarray(tile)
        points = numpy.ascontiguousarray(tile.transpose(1, 2, 0)).astype(numpy.uint8)
        assert (points == tile.transpose(1, 2, 0)).all()
        found.append([points.shape[1], points.shape[0], zlib.crc32(points.tobytes())])
    return found


PLAIN = {"do_rescale": False, "do_normalize": False, "do_convert_rgb": False}


def canvas(image, most):
    processor = MllamaImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, max_image_tiles=most, **PLAIN
    )
    made = processor(image, return_tensors="np")
    count = int(numpy.asarray(made["num_tiles"][0][0]))
    return described(numpy.asarray(made["pixel_values"])[0, 0, :count])


def closest(image, most):
    processor = GotOcr2ImageProcessorPil(
        size={"height": SIDE, "width": SIDE},
        crop_to_patches=True,
        min_patches=1,
        max_patches=most,
        **PLAIN,
    )
    return described(numpy.asarray(processor(image, return_tensors="np")["pixel_values"]))


def rows(image, across):
    processor = Idefics3ImageProcessorPil(
        size={"longest_edge": SIDE * across},
        max_image_size={"longest_edge": SIDE},
        do_image_splitting=True,
        **PLAIN,
    )
    made = processor(image, return_tensors="np", return_row_col_info=True)
    tiles = described(numpy.asarray(made["pixel_values"])[0])
    return {"tiles": tiles, "rows": made["rows"][0][0], "columns": made["cols"][0][0]}


def resized(image):
    found = {}
    for name in ["BILINEAR", "BICUBIC", "LANCZOS"]:
        to = image.resize((61, 23), getattr(Image.Resampling, name))
        found[name.lower()] = zlib.crc32(to.tobytes())
    return found


def main():
    cases = []
    for width, height in SIZES:
        image = test_image(width, height)
        case = {"width": width, "height": height, "resized": resized(image)}
        case["canvas"] = {most: canvas(image, most) for most in [1, 4, 6]}
        case["closest"] = {most: closest(image, most) for most in [1, 4, 12]}
        case["rows"] = {across: rows(image, across) for across in [1, 2, 4]}
        cases.append(case)
    text = json.dumps({"side": SIDE, "cases": cases}, separators=(",", ":"))
    (FORMS / "images.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
