"""`Predictor`: batch inference in worker pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from torchlet._errors import Error, invalid_argument
from torchlet._module import Module, Source
from torchlet._torchlet import Tensor


class Predictor:
    """Runs a method over batches: dictionaries of NumPy arrays with the batch as first dim.

    It is designed for `ray.data.Dataset.map_batches`, which creates one per worker, so that each
    worker opens the program once:

        dataset.map_batches(
            torchlet.Predictor,
            fn_constructor_args=["model.pte"],
            fn_constructor_kwargs={"inputs": ["image"], "outputs": ["logits"]},
            concurrency=4,
            num_cpus=1,
        )

    Batches may have any size. They are split into pieces of the exported batch size; the last one
    is padded with zeros, whose outputs are dropped. A dynamic batch size needs no padding.

    Arguments:
        source: The program, as for `Module`. Paths are those of the worker.
        inputs: The columns for the method's inputs, in order.
        outputs: The columns for its outputs.
        method: The method.
        keep: Columns of the batch to keep; all if `None`.
        options: Other options of `Module`: `backend`, `threads`, `data`, ... The default is one
            thread, because workers run in parallel.
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
                raise invalid_argument(
                    f"'{method}' has {len(values)} {what}, found {len(names)}: {names}"
                )
            if not all(value.kind == "Tensor" and value.shape for value in values):
                raise invalid_argument(
                    f"not all {what} of '{method}' are tensors with a batch dim: {values}"
                )
        rows = {value.shape[0] for value in taken.inputs}
        if len(rows) != 1 or rows == {0}:
            raise invalid_argument(
                f"the inputs of '{method}' have different batch sizes: {taken.inputs}"
            )
        (self._rows,) = rows
        self._dynamic = all(value.dynamic for value in taken.inputs)
        self.module.load(method)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with the outputs as columns."""
        import numpy

        missing = [name for name in self._inputs if name not in batch]
        if missing:
            raise invalid_argument(f"the batch lacks the columns {missing}; it has {list(batch)}")
        columns = [numpy.asarray(batch[name]) for name in self._inputs]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise invalid_argument(
                f"the columns {self._inputs} have different numbers of rows: {sorted(lengths)}"
            )
        (count,) = lengths
        pieces = [self._run(columns, start) for start in range(0, count, self._rows)]
        kept = list(batch) if self._keep is None else self._keep
        result = {name: batch[name] for name in kept}
        for index, name in enumerate(self._outputs):
            parts = [piece[index] for piece in pieces]
            result[name] = numpy.concatenate(parts) if parts else self._empty(index)
        return result

    def _run(self, columns: list[Any], start: int) -> list[Any]:
        """Returns the outputs of one call, for the rows from `start` on."""
        pieces = [column[start : start + self._rows] for column in columns]
        lacking = self._rows - len(pieces[0])
        if not lacking:
            return self._execute(pieces)
        if self._dynamic:
            try:
                return self._execute(pieces)
            except Error:
                # Perhaps another dim is dynamic: the file does not tell which.
                outputs = self._filled_up(pieces, lacking)
                self._dynamic = False
                return outputs
        return self._filled_up(pieces, lacking)

    def _filled_up(self, pieces: list[Any], lacking: int) -> list[Any]:
        """Returns the outputs of pieces that are padded with zeros during the call."""
        import numpy

        count = len(pieces[0])
        filled = [
            numpy.concatenate([piece, numpy.zeros((lacking, *piece.shape[1:]), piece.dtype)])
            for piece in pieces
        ]
        return [output[:count] for output in self._execute(filled)]

    def _execute(self, pieces: list[Any]) -> list[Any]:
        """Returns the outputs of a call, checking their number of rows."""
        count = len(pieces[0])
        outputs = self.module.execute(self._method, *pieces)
        for name, output in zip(self._outputs, outputs):
            if len(output) != count:
                raise invalid_argument(
                    f"output '{name}': expected {count} rows, found {len(output)}"
                )
        return outputs

    def _empty(self, index: int) -> Any:
        """An output with zero rows."""
        output = self.module[self._method].outputs[index]
        return Tensor.zeros([0, *output.shape[1:]], output.dtype or "float32").numpy()
