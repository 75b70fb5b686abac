"""Measures the overhead of Ray: images per second of CPU time, in one process and with Ray Data.

    python ray_throughput.py model.pte --images 2000 --workers 2

CPU time is that of the processes that run the program. It includes Ray's work in them to receive
batches and send results, but not loading the program. Other load on the machine has little effect.
"""

import argparse
import os
import time
from typing import Any

import numpy
import ray

import torchlet


class Timed(torchlet.Predictor):
    """A worker that reports its CPU time since it loaded the program."""

    def __init__(self, path: str) -> None:
        super().__init__(path, inputs=["image"], outputs=["output"], backend="cpu")
        self.start = time.process_time()

    def __call__(self, batch: Any) -> Any:
        found = super().__call__(batch)
        rows = len(found["output"])
        spent = time.process_time() - self.start
        return {
            "class": found["output"].argmax(1),
            "worker": numpy.full(rows, os.getpid()),
            "spent": numpy.full(rows, spent),
        }


def alone(path: str, images: Any, batch: int) -> float:
    """Returns images per CPU second of one process."""
    predict = torchlet.Predictor(path, inputs=["image"], outputs=["output"], backend="cpu")
    start = time.process_time()
    for at in range(0, len(images), batch):
        predict({"image": images[at : at + batch]})["output"].argmax(1)
    return len(images) / (time.process_time() - start)


def fleet(path: str, images: Any, batch: int, workers: int) -> float:
    """Returns images per CPU second of all workers together."""
    ray.init(num_cpus=workers + 2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.from_numpy(numpy.array_split(images, 4 * workers)).rename_columns(
        {"data": "image"}
    )
    classified = dataset.map_batches(
        Timed,
        fn_constructor_args=[os.path.abspath(path)],
        concurrency=workers,
        num_cpus=1,
        batch_size=batch,
    )
    spent: dict[int, float] = {}
    count = 0
    for row in classified.iter_rows():
        spent[row["worker"]] = max(spent.get(row["worker"], 0.0), row["spent"])
        count += 1
    ray.shutdown()
    assert count == len(images), f"{count} of {len(images)} images came back"
    return count / sum(spent.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    (taken,) = torchlet.Module(options.model)["forward"].inputs
    images = numpy.random.default_rng(0).random((options.images, *taken.shape[1:]), numpy.float32)
    # Alternates, because clock rates change over time.
    rates = [alone(options.model, images, options.batch)]
    rates.append(fleet(options.model, images, options.batch, options.workers))
    rates.append(alone(options.model, images, options.batch))
    one, many = max(rates[0], rates[2]), rates[1]
    print(
        f"images per CPU second: {one:.1f} in one process, "
        f"{many:.1f} with {options.workers} Ray workers ({many / one:.0%})"
    )


if __name__ == "__main__":
    main()
