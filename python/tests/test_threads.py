"""Threads share modules, and other threads run during calls."""

import gc
import os
import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import fixture

import torchlet

numpy = pytest.importorskip("numpy")


def test_threads_share_a_module(digits: torchlet.Module) -> None:
    images = numpy.load(fixture("digits/held_out.npy"))
    labels = fixture("digits/held_out_labels.txt").read_text().split()

    def classify(index: int) -> bool:
        image = images[index % len(images)][None]
        return str(int(digits(image)[0].argmax())) == labels[index % len(labels)]

    alone = [classify(index) for index in range(len(images))]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(classify, range(400)))
    assert together == alone * (400 // len(alone))
    assert sum(alone) >= 19


def test_concurrent_calls_do_not_mix_inputs_and_outputs() -> None:
    module = torchlet.Module(fixture("programs/identity.bpte"))

    def call(number: int) -> bool:
        given = numpy.full((2, 3), number, "float32")
        return bool((module(given)[0] == module(given)[0]).all())

    expected = {number: module(numpy.full((2, 3), number, "float32"))[0] for number in range(32)}

    def same(number: int) -> bool:
        given = numpy.full((2, 3), number % 32, "float32")
        return bool((module(given)[0] == expected[number % 32]).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(64))) and all(pool.map(same, range(640)))


def test_number_of_threads_can_be_reduced() -> None:
    module = torchlet.Module(fixture("models/mobilenet_v2.pte"), threads=2)
    image = numpy.linspace(0, 1, 3 * 16 * 16, dtype="float32").reshape(
        module["forward"].inputs[0].shape
    )
    together = module(image)[0]
    assert module.threads == 2
    assert module.set_threads(1) == module.threads == 1
    assert (module(image)[0] == together).all()
    # Modules over the same file share threads: at least one, at most the number it was opened with.
    assert module.share().threads == 1
    assert module.set_threads(8) == 2 and module.set_threads(0) == 1


def test_other_threads_run_while_a_method_runs() -> None:
    module = torchlet.Module(fixture("models/mobilenet_v2.pte"), "as-exported", threads=1)
    image = numpy.zeros(module["forward"].inputs[0].shape, "float32")
    module(image)
    ticks = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        within = 0
        # Scheduling depends on the machine, so one run during which another thread ran is enough.
        for _ in range(500):
            start = time.perf_counter()
            module._native.run("forward")
            end = time.perf_counter()
            within += sum(start < tick < end for tick in ticks[-50:])
            if within:
                break
    finally:
        stop.set()
        ticker.join()
    assert within, "no other thread had a turn while a method ran"


def test_finalizers_can_use_the_module(digits: torchlet.Module, image: Any) -> None:
    # The garbage collector may run during a call, which must not deadlock.
    class Finaliser:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            digits(image)

    threshold = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for _ in range(50):
            Finaliser()
            digits(image)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert digits(image)[0].argmax() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is not available")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_processes_must_reopen_modules(digits: torchlet.Module, image: Any) -> None:
    digits(image)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            digits(image)
        except torchlet.Error as error:
            again = torchlet.Module(fixture("digits/digits.pte"), threads=2)
            status = 0 if "forked" in str(error) and again(image)[0].argmax() == 2 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is not available")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_processes_can_drop_modules(image: Any) -> None:
    module = torchlet.Module(fixture("digits/digits.pte"), threads=2)
    module(image)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 2)
        # The kernel threads do not exist in the fork and must not be joined.
        module = None
        os._exit(0)
    os.close(write)
    with open(read, "rb") as complaints:
        assert complaints.read() == b""
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert module(image)[0].argmax() == 2


def test_concurrently_written_memory_is_copied() -> None:
    """NumPy adds without the GIL: a concurrent copy has only values from before or after."""
    array = numpy.zeros(1 << 20, "float32")
    tensor = torchlet.Tensor(array)
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            numpy.add(array, 1, out=array)

    counting = threading.Thread(target=count)
    counting.start()
    try:
        for _ in range(20):
            before = float(array.min())
            copied = numpy.from_dlpack(tensor, copy=True)
            after = float(array.max()) + 1
            assert copied.min() >= before and copied.max() <= after
    finally:
        done.set()
        counting.join()


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="the interpreter is not free-threaded",
)
def test_free_threaded_interpreters_keep_the_gil_disabled() -> None:
    assert not sys._is_gil_enabled()
