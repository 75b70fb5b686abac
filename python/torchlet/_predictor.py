"""`Predictor`: a program as a function of batches, for fleets of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from torchlet._errors import Error, invalid_argument
from torchlet._module import Module, Source
from torchlet._torchlet import Tensor


class Predictor:
    """Runs a method over batches of rows: dictionaries of NumPy arrays, one row for each index of the first dimension.

    It is made for `ray.data.Dataset.map_batches`, which makes one in each worker, so that a program is opened once there:

        dataset.map_batches(
            torchlet.Predictor,
            fn_constructor_args=["model.pte"],
            fn_constructor_kwargs={"inputs": ["image"], "outputs": ["logits"]},
            concurrency=4,
            num_cpus=1,
        )

    Batches may be of any size. They are cut as the method takes them: into pieces of the exported batch size, the last of them filled up
    with zeros, which are cut off again; or, where that is dynamic, into the largest pieces that it takes.

    Arguments:
        source: The program, as `Module` takes it. Paths are those of the worker.
        inputs: The columns that the method's inputs are, in order.
        outputs: The names of the columns that its outputs become.
        method: The method.
        keep: Columns of the batch that come along; all if `None`.
        options: What else `Module` takes: `backend`, `threads`, `data`, ... One thread, unless set: workers are the threads of a fleet.
    """

    def __init__(
        self,
        source: Source,
        *,
        inputs: Sequence[str] = ("input",),
        outputs: Sequence[str] = ("output",),
        method: str = "forward",
        keep: Optional[Sequence[str]] = None,
        **options: Any,
    ) -> None:
        options.setdefault("threads", 1)
        #: The program.
        self.module = Module(source, outputs="numpy", **options)
        self._inputs, self._outputs, self._method = list(inputs), list(outputs), method
        self._keep = None if keep is None else list(keep)
        taken = self.module[method]
        for names, values, what in (
            (self._inputs, taken.inputs, "inputs"),
            (self._outputs, taken.outputs, "outputs"),
        ):
            if len(names) != len(values):
                raise invalid_argument(f"{names} are {len(names)} {what}, '{method}' has {len(values)}")
            if not all(value.kind == "Tensor" and value.shape for value in values):
                raise invalid_argument(f"not all {what} of '{method}' are tensors with rows: {values}")
        rows = {value.shape[0] for value in taken.inputs}
        if len(rows) != 1 or rows == {0}:
            raise invalid_argument(f"the inputs of '{method}' have no common number of rows: {taken.inputs}")
        (self._rows,) = rows
        self._dynamic = all(value.dynamic for value in taken.inputs)
        self.module.load(method)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with the outputs as columns."""
        import numpy

        missing = [name for name in self._inputs if name not in batch]
        if missing:
            raise invalid_argument(f"the batch has no columns {missing}; it has {list(batch)}")
        columns = [numpy.asarray(batch[name]) for name in self._inputs]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise invalid_argument(f"the columns {self._inputs} have {sorted(lengths)} rows")
        (count,) = lengths
        pieces = [self._run(columns, start) for start in range(0, count, self._rows)]
        kept = list(batch) if self._keep is None else self._keep
        result = {name: batch[name] for name in kept}
        for index, name in enumerate(self._outputs):
            parts = [piece[index] for piece in pieces]
            result[name] = numpy.concatenate(parts) if parts else self._empty(index)
        return result

    def _run(self, columns: list[Any], start: int) -> list[Any]:
        """The outputs of the rows from `start` on, as many as go into one call."""
        pieces = [column[start : start + self._rows] for column in columns]
        lacking = self._rows - len(pieces[0])
        if not lacking:
            return self._execute(pieces)
        if self._dynamic:
            try:
                return self._execute(pieces)
            except Error:
                # Perhaps other dimensions than that of rows are dynamic: files do not tell.
                outputs = self._filled_up(pieces, lacking)
                self._dynamic = False
                return outputs
        return self._filled_up(pieces, lacking)

    def _filled_up(self, pieces: list[Any], lacking: int) -> list[Any]:
        """The outputs of pieces, with rows of zeros behind them meanwhile."""
        import numpy

        count = len(pieces[0])
        filled = [
            numpy.concatenate([piece, numpy.zeros((lacking, *piece.shape[1:]), piece.dtype)])
            for piece in pieces
        ]
        return [output[:count] for output in self._execute(filled)]

    def _execute(self, pieces: list[Any]) -> list[Any]:
        """The outputs of a call, which have as many rows as it takes."""
        count = len(pieces[0])
        outputs = self.module.execute(self._method, *pieces)
        for name, output in zip(self._outputs, outputs):
            if len(output) != count:
                raise invalid_argument(f"output '{name}' has {len(output)} rows for {count}")
        return outputs

    def _empty(self, index: int) -> Any:
        """No rows of an output."""
        output = self.module[self._method].outputs[index]
        return Tensor.zeros([0, *output.shape[1:]], output.dtype or "float32").numpy()
