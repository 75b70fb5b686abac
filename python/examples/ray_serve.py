"""Serves a program with Ray Serve: batched requests, autoscaling, health checks.

    serve run examples.ray_serve:application path=model.pte
    serve run examples.ray_serve:application path=model.pte backend=vulkan num_gpus=0.5

A request is one row of the input in JSON, such as `{"row": [[[0.0, ...]]]}`. The response is one row
of the output.
"""

import os
from typing import Any

import numpy
import ray
from ray import serve
from starlette.requests import Request

import torchlet


@serve.deployment(
    autoscaling_config={"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 8},
    health_check_period_s=5,
    ray_actor_options={"num_cpus": 1},
)
class Classifier:
    """A replica, which opens the program once."""

    def __init__(self, path: str, backend: str = "auto") -> None:
        # Ray hides other workers' GPUs from CUDA, but not from Vulkan.
        if gpus := ray.get_gpu_ids():
            os.environ["TORCHLET_VULKAN_DEVICE"] = str(gpus[0])
        self.predict = torchlet.Predictor(path, backend=backend, inputs=["row"], outputs=["output"])
        (taken,) = self.predict.module["forward"].inputs
        self.shape, self.dtype = taken.shape[1:], taken.dtype

    def check_health(self) -> None:
        """Runs the program once. If this raises, Ray replaces the replica."""
        self.predict({"row": numpy.zeros((1, *self.shape), self.dtype)})

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)
    async def classify(self, rows: list[Any]) -> list[list[float]]:
        """Runs all pending requests as one batch."""
        return self.predict({"row": numpy.stack(rows)})["output"].tolist()

    async def __call__(self, request: Request) -> list[float]:
        row = numpy.asarray((await request.json())["row"], self.dtype)
        if row.shape != self.shape:
            raise ValueError(f"a row has shape {self.shape}, not {row.shape}")
        return await self.classify(row)


def application(options: dict[str, str]) -> Any:
    """Builds the application from a path, a backend, and the GPU fraction per replica."""
    resources = {"num_cpus": 1, "num_gpus": float(options.get("num_gpus", 0))}
    replica = Classifier.options(ray_actor_options=resources)
    return replica.bind(options["path"], options.get("backend", "auto"))
