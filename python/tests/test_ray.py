"""Tests with Ray, if it is installed: `pip install "ray[data,serve]"`, `pytest test_ray.py`."""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import fixture

import torchlet
from torchlet.runtime import Runtime

ray = pytest.importorskip("ray")
numpy = pytest.importorskip("numpy")

pytestmark = pytest.mark.filterwarnings("ignore")

DIGITS = fixture("digits/digits.pte")
IMAGES = 10_000


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Ray on this machine."""
    # Workers import the classes of this file by its module name.
    paths = os.pathsep.join(
        [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    environment = {"env_vars": {"PYTHONPATH": paths}}
    # More processors than the workers use, because reading the images needs one. The GPU need not
    # exist: Ray only hands out fractions of a number.
    ray.init(
        num_cpus=4,
        num_gpus=1,
        include_dashboard=False,
        runtime_env=environment,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


class Mortal(torchlet.Predictor):
    """A worker that kills itself once: the first that sees a marked image."""

    def __init__(self, marker: str, mark: int) -> None:
        super().__init__(DIGITS, inputs=["image"], outputs=["logits"])
        self.marker, self.mark = Path(marker), mark

    def __call__(self, batch: Any) -> Any:
        if self.mark in batch["index"] and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        found = super().__call__(batch)
        return {"index": found["index"], "class": found["logits"].argmax(1)}


def test_nothing_is_lost_when_a_worker_is_killed(tmp_path: Path) -> None:
    held_out = numpy.load(fixture("digits/held_out.npy"))
    images = numpy.resize(held_out, (IMAGES, *held_out.shape[1:]))
    dataset = ray.data.from_numpy(numpy.array_split(images, 20))
    dataset = dataset.zip(ray.data.range(IMAGES)).rename_columns({"data": "image", "id": "index"})
    marker = tmp_path / "killed"
    classified = dataset.map_batches(
        Mortal,
        fn_constructor_args=[str(marker), IMAGES // 2],
        concurrency=2,
        num_cpus=1,
        batch_size=250,
    )
    classes = numpy.full(IMAGES, -1)
    for row in classified.iter_rows():
        assert classes[row["index"]] == -1, "an image came twice"
        classes[row["index"]] = row["class"]
    assert marker.exists(), "no worker was killed"
    alone = torchlet.Predictor(DIGITS, inputs=["image"], outputs=["logits"])
    expected = alone({"image": held_out})["logits"].argmax(1)
    assert (classes == numpy.resize(expected, IMAGES)).all()


class Placed(torchlet.Predictor):
    """A worker with a fraction of a GPU. Runs on the GPU that Ray assigned, or on the CPU."""

    def __init__(self, **options: Any) -> None:
        (self.gpu,) = ray.get_gpu_ids()
        # Ray hides GPUs from CUDA only.
        os.environ["TORCHLET_VULKAN_DEVICE"] = str(self.gpu)
        has_device = Runtime.get().backend_registry.is_available("VulkanBackend")
        backend = "vulkan" if has_device else "cpu"
        super().__init__(DIGITS, inputs=["image"], outputs=["logits"], backend=backend, **options)

    def __call__(self, batch: Any) -> Any:
        found = super().__call__(batch)
        # Leaves a share of the work to the other worker.
        time.sleep(0.1)
        rows = len(found["index"])
        ours = {"worker": numpy.full(rows, os.getpid()), "gpu": numpy.full(rows, int(self.gpu))}
        return {"index": found["index"], "class": found["logits"].argmax(1), **ours}


def test_workers_share_a_gpu() -> None:
    held_out = numpy.load(fixture("digits/held_out.npy"))
    images = numpy.resize(held_out, (2000, *held_out.shape[1:]))
    dataset = ray.data.from_numpy(numpy.array_split(images, 20))
    dataset = dataset.zip(ray.data.range(len(images))).rename_columns(
        {"data": "image", "id": "index"}
    )
    classified = dataset.map_batches(
        Placed,
        fn_constructor_kwargs={"keep": ["index"]},
        concurrency=2,
        num_cpus=1,
        num_gpus=0.5,
        batch_size=100,
    )
    rows = sorted(classified.iter_rows(), key=lambda row: row["index"])
    assert [row["index"] for row in rows] == list(range(len(images)))
    assert {row["gpu"] for row in rows} == {0}
    assert len({row["worker"] for row in rows}) == 2, "one worker did all"
    expected = torchlet.Predictor(DIGITS, inputs=["image"], outputs=["logits"])(
        {"image": held_out}
    )["logits"].argmax(1)
    assert ([row["class"] for row in rows] == numpy.resize(expected, len(images))).all()


def test_workers_wait_for_a_free_gpu() -> None:
    first = ray.remote(Placed).options(num_gpus=0.75).remote()
    ray.get(
        first.__call__.remote(
            {"image": numpy.load(fixture("digits/held_out.npy")), "index": numpy.arange(20)}
        )
    )
    second = ray.remote(Placed).options(num_gpus=0.5).remote()
    call = second.__call__.remote(
        {"image": numpy.load(fixture("digits/held_out.npy")), "index": numpy.arange(20)}
    )
    assert ray.wait([call], timeout=2)[0] == []
    ray.kill(first)
    assert len(ray.get(call, timeout=60)["class"]) == 20
    ray.kill(second)


def test_serving() -> None:
    serve = pytest.importorskip("ray.serve")
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    try:
        from ray_serve import application
    finally:
        sys.path.pop(0)
    ray.cloudpickle.register_pickle_by_value(sys.modules["ray_serve"])
    held_out = numpy.load(fixture("digits/held_out.npy"))
    labels = fixture("digits/held_out_labels.txt").read_text().split()
    serve.start(http_options={"port": 18734})
    serve.run(application({"path": str(DIGITS), "num_gpus": "0.5"}))
    try:
        right = 0
        for image, label in zip(held_out, labels):
            body = json.dumps({"row": image.tolist()}).encode()
            with urllib.request.urlopen("http://127.0.0.1:18734/", body, timeout=60) as answer:
                right += int(numpy.argmax(json.load(answer))) == int(label)
        assert right >= 19
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen("http://127.0.0.1:18734/", b'{"row": [1]}', timeout=60)
    finally:
        serve.shutdown()
