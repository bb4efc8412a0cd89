r"""Phase diagrams: every branch followed through a plane of two parameters, slice by slice, on any executor.

A slice fixes the second parameter. On it the branch of every named start is traced in the first parameter in both
directions, so that states beyond the transition (hysteresis) are part of the table, with their stability; rows land on
the grid exactly. The boundaries are not read off the grid: folds, pitchforks, stability lines, equal potentials and
user-defined crossings are located on every slice.

A slice depends on nothing but its own parameters: the table is the same with one worker or many, resumed or not.

On another machine nothing changes but the executor::

    with statmech_attn.local_pool(4) as executor:                           # processes of this machine
        statmech_attn.phase_diagram(..., executor=executor)

    with dask.distributed.Client("scheduler:8786") as client:               # a dask cluster
        statmech_attn.phase_diagram(..., executor=client.get_executor())

    with mpi4py.futures.MPIPoolExecutor() as executor:                      # mpiexec -n 16 python -m mpi4py.futures ...
        statmech_attn.phase_diagram(..., executor=executor)
"""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import combinations
from multiprocessing import get_context
from typing import Any

import numpy as np

from statmech_attn.continuation import Branch, locate, trace
from statmech_attn.events import Event, Fold, SymmetryBreaking
from statmech_attn.registry import theory_class
from statmech_attn.store import read_archive, replacing, write_archive
from statmech_attn.theory import Array, ConvergenceError, Theory, parameters_of, replace
from statmech_attn.transitions import coexistence

__all__ = ["PhaseDiagram", "load_diagram", "local_pool", "phase_diagram"]

log = logging.getLogger(__name__)

Table = dict[str, np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class Slice:
    """What a worker needs: a theory with the second parameter set, and how to trace its branches in the first."""

    theory: Theory
    first: str
    second: str
    grid: tuple[float, ...]
    starts: tuple[str, ...]
    events: tuple[Event, ...]
    accuracy: float
    maximum_step: float


@dataclass(frozen=True)
class PhaseDiagram:
    """Branches over a grid of two parameters.

    Attributes
    ----------
    theory : Theory
    axes : dict
        Grid of the first and second parameter, by name.
    starts : tuple of str
    table : dict of (k,) arrays
        A row for every start and grid point (several where a branch passes a value more than once): parameters,
        `start`, `status` ("followed", "absent", "not found: ..." or
        "failed: ..."), order parameters, `potential`, observables,
        `residual`, `quadrature_error`, `static` (1 where the potential is stable, 0 where not), `iteration` (spectral
        radius), `rate_...`. Numbers are nan where there is no state.
    transitions : dict of (k,) arrays
        Located events: second parameter, `name`, `start` (both, joined by "|", for a coexistence), critical value of
        the first parameter, `residual`, order parameters.
    failures : tuple of str
        Slices that are missing, and why; calling again with the same checkpoint computes them.
    """

    theory: Theory
    axes: dict[str, Array]
    starts: tuple[str, ...]
    table: Table
    transitions: Table
    failures: tuple[str, ...]

    def __str__(self) -> str:
        axes = " x ".join(f"{name} ({values.size})" for name, values in self.axes.items())
        return (
            f"{self.theory.name}: phase diagram in {axes}, starts {', '.join(self.starts)}, "
            f"{len(self.table['start'])} rows, {len(self.transitions['name'])} transitions, "
            f"{len(self.failures)} failures"
        )

    __repr__ = __str__

    def grid(self, name: str, start: str) -> Array:
        """A column of one start over the grid, (first, second); of several states that of least potential."""
        if start not in self.starts or name not in self.table:
            columns, starts = ", ".join(self.table), ", ".join(self.starts)
            raise KeyError(f"({name!r}, {start!r}): columns are {columns}, starts {starts}")
        (first, a), (second, b) = self.axes.items()
        result = np.full((a.size, b.size), np.nan)
        least = np.full((a.size, b.size), np.inf)
        for k in np.flatnonzero((self.table["start"] == start) & (self.table["status"] == "followed")):
            i, j = np.searchsorted(a, self.table[first][k]), np.searchsorted(b, self.table[second][k])
            if self.table["potential"][k] < least[i, j]:
                least[i, j], result[i, j] = self.table["potential"][k], self.table[name][k]
        return result

    def line(self, name: str, start: str) -> tuple[Array, Array]:
        """Second parameter and critical first parameter of an event on a branch, slice by slice."""
        first, second = self.axes
        rows = (self.transitions["name"] == name) & (self.transitions["start"] == start)
        return self.transitions[second][rows], self.transitions[first][rows]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table as CSV."""
        _write_csv(path, self.table)

    def transitions_to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the located events as CSV."""
        _write_csv(path, self.transitions)

    def to_pandas(self) -> Any:
        """The table as a DataFrame (needs pandas)."""
        import pandas

        return pandas.DataFrame(self.table)

    def to_xarray(self) -> Any:
        """Numbers over (start, first, second) as a Dataset (needs xarray)."""
        import xarray

        numbers = [n for n, column in self.table.items() if column.dtype.kind == "f" and n not in self.axes]
        dims = ("start", *self.axes)
        data = {n: (dims, np.array([self.grid(n, s) for s in self.starts])) for n in numbers}
        return xarray.Dataset(data, coords={"start": list(self.starts), **self.axes})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything as .npz."""
        header = {
            "theory": self.theory.name,
            "parameters": parameters_of(self.theory),
            "axes": list(self.axes),
            "starts": self.starts,
            "failures": self.failures,
        }
        arrays = {f"axis.{n}": grid for n, grid in self.axes.items()}
        arrays |= {f"table.{n}": c for n, c in self.table.items()}
        arrays |= {f"transitions.{n}": c for n, c in self.transitions.items()}
        write_archive(path, "phase diagram", header, arrays)


def load_diagram(path: str | os.PathLike[str]) -> PhaseDiagram:
    """Read a diagram written by :meth:`PhaseDiagram.save`; ValueError for anything else."""
    header, arrays = read_archive(path, "phase diagram")
    return PhaseDiagram(
        theory=theory_class(header["theory"])(**header["parameters"]),
        axes={n: arrays[f"axis.{n}"] for n in header["axes"]},
        starts=tuple(header["starts"]),
        table=_part(arrays, "table."),
        transitions=_part(arrays, "transitions."),
        failures=tuple(header["failures"]),
    )


def local_pool(workers: int) -> ProcessPoolExecutor:
    """Processes on this machine, started afresh (spawn), with one thread each.

    As with any spawned process, a script that uses it needs ``if __name__ == "__main__":`` around its main part.

    Examples
    --------
    >>> with local_pool(1) as pool:
    ...     pool.submit(abs, -2).result()
    2
    """
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread)


def _one_thread() -> None:
    import numba

    numba.set_num_threads(1)


def phase_diagram(
    theory: Theory,
    *,
    starts: Sequence[str] | None = None,
    events: Sequence[Event] = (),
    accuracy: float = 1e-4,
    maximum_step: float = 0.2,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
    callback: Callable[[int, int], object] | None = None,
    **axes: Sequence[float] | Array,
) -> PhaseDiagram:
    """Follow the branches of a theory through a plane of two parameters.

    Parameters
    ----------
    theory : Theory
        The model; its own values of the two parameters do not matter.
    starts : sequence of str, optional
        Named starts; default all of the theory.
    events : sequence of Event
        To locate besides folds and symmetry breaking on every branch and coexistence of every pair.
    accuracy, maximum_step : float
        As for :func:`.trace`.
    executor : concurrent.futures.Executor, optional
        What computes the slices; default this process. ``local_pool(2)``, dask's ``client.get_executor()`` and
        ``mpi4py.futures.MPIPoolExecutor()`` serve alike.
    checkpoint : path, optional
        File that keeps finished slices and from which the same call resumes.
    progress : bool
        Show a bar (tqdm, where installed).
    callback : callable, optional
        Called with (slices done, slices in all).
    **axes
        Two parameters with their grids: the first is followed, the second has one slice for every value.

    Returns
    -------
    PhaseDiagram

    Raises
    ------
    ValueError, TypeError
        For parameters, grids or starts the theory does not have, or a checkpoint of another diagram.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> model = sa.PositionalSemantic(alpha=1.0)
    >>> diagram = sa.phase_diagram(model, alpha=[1.0, 1.2, 1.5], omega=[0.3], starts=("semantic", "positional"))
    >>> diagram.line("coexistence", "semantic|positional")[1].round(3)
    array([1.252])
    """
    if len(axes) != 2:
        raise TypeError(f"a phase diagram needs two parameters with their grids, not {', '.join(axes) or 'none'}")
    grids = {name: _grid(theory, name, values) for name, values in axes.items()}
    (first, along), (second, across) = grids.items()
    if along.size < 2:
        raise ValueError(f"{first}={along.tolist()} must hold at least two values: the branches are followed in it")
    starts = tuple(theory.starts if starts is None else starts)
    unknown = [s for s in starts if s not in theory.starts]
    if unknown or not starts:
        raise ValueError(f"starts={starts} must be some of {', '.join(theory.starts)}")
    slices = [
        Slice(
            replace(theory, **{first: float(along[-1]), second: float(value)}),
            first, second, tuple(along.tolist()), starts, tuple(events), accuracy, maximum_step,
        )
        for value in across
    ]  # fmt: skip
    key = {
        "theory": theory.name,
        "parameters": {n: v for n, v in parameters_of(theory).items() if n not in grids},
        "axes": {n: grid.tolist() for n, grid in grids.items()},
        "starts": list(starts),
        "events": [event.name for event in events],
        "accuracy": accuracy,
        "maximum_step": maximum_step,
    }
    done: dict[int, tuple[Table, Table]] = {}
    if checkpoint is not None and os.path.exists(checkpoint):
        done = _load_slices(checkpoint, key)
    todo = {k: s for k, s in enumerate(slices) if k not in done}
    failures: dict[int, str] = {}
    for k, result in _bar(_computed(todo, executor), len(todo), progress):
        if isinstance(result, BaseException):
            failures[k] = f"{second}={across[k]:g}: {type(result).__name__}: {result}"
            log.warning("slice failed, %s", failures[k])
        else:
            done[k] = result
            if checkpoint is not None:
                _save_slices(checkpoint, key, done)
        if callback is not None:
            callback(len(done), len(slices))
    results = [done[k] if k in done else _nothing(slices[k], f"failed: {failures[k]}") for k in range(len(slices))]
    return PhaseDiagram(
        theory, grids, starts, _stacked([r[0] for r in results]), _stacked([r[1] for r in results]),
        tuple(failures[k] for k in sorted(failures)),
    )  # fmt: skip


def _grid(theory: Theory, name: str, values: Sequence[float] | Array) -> Array:
    try:
        grid = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={values!r} must be a sequence of numbers") from None
    if grid.ndim != 1 or grid.size == 0 or not np.all(np.isfinite(grid)) or np.any(np.diff(grid) <= 0):
        raise ValueError(f"{name}={values!r} must be finite and increase")
    for value in grid[[0, -1]]:
        replace(theory, **{name: float(value)})
    return grid


def _computed(
    todo: Mapping[int, Slice], executor: Executor | None
) -> Iterator[tuple[int, tuple[Table, Table] | BaseException]]:
    """Results as they come, or the exception instead."""
    if executor is None:
        for k, item in todo.items():
            try:
                yield k, follow(item)
            except Exception as failure:  # as of a worker: one slice is lost, not all
                yield k, failure
        return
    futures: dict[Future[tuple[Table, Table]], int] = {}
    for k, item in todo.items():
        try:
            futures[executor.submit(follow, item)] = k
        except Exception as refusal:  # an executor that has died
            yield k, refusal
    for future in as_completed(futures):
        error = future.exception()
        yield futures[future], future.result() if error is None else error


def _bar(items: Iterable[Any], total: int, progress: bool) -> Iterable[Any]:
    if progress:
        try:
            from tqdm import tqdm
        except ImportError:
            log.warning("no progress bar: tqdm is not installed")
        else:
            bar: Iterable[Any] = tqdm(items, total=total, unit="slice")
            return bar
    return items


# ---- a slice


def follow(item: Slice) -> tuple[Table, Table]:
    """Rows and transitions of a slice; a branch that does not exist or fails is a status, not an exception."""
    tables, lists, branches = [], [], {}
    odd = np.any(item.theory.symmetries < 0, axis=0)
    names = [n for n, flips in zip(item.theory.order_parameters, odd, strict=True) if flips]
    events: list[Event] = [Fold(), *(SymmetryBreaking(n) for n in names), *item.events]
    for start in item.starts:
        try:
            branch = trace(
                item.theory, item.first, (item.grid[0], item.grid[-1]), start,
                at=item.grid, events=(), accuracy=item.accuracy, maximum_step=item.maximum_step,
            )  # fmt: skip
            found = [(start, t) for event in events for t in locate(branch, event)]
        except (ConvergenceError, ArithmeticError, np.linalg.LinAlgError) as error:
            tables.append(_absent(item, start, item.grid, f"not found: {error}"))
            continue
        branches[start] = branch
        tables.append(_rows(item, start, branch))
        lists += found
    for one, other in combinations(branches, 2):
        try:
            lists.append((f"{one}|{other}", coexistence(branches[one], branches[other])))
        except ValueError as error:
            log.info("%s", error)
    return _stacked(tables), _events(item, lists)


def _rows(item: Slice, start: str, branch: Branch) -> Table:
    wanted = [row for row in branch.rows if row.parameter in item.grid]
    reached = {row.parameter for row in wanted}
    missing = [value for value in item.grid if value not in reached]
    n = len(wanted)
    table: dict[str, Any] = {
        item.first: [row.parameter for row in wanted],
        item.second: [getattr(item.theory, item.second)] * n,
        "start": [start] * n,
        "status": ["followed"] * n,
    }
    for name in item.theory.order_parameters:
        table[name] = [row[name] for row in wanted]
    for name in ("potential", "residual", "quadrature_error"):
        table[name] = [getattr(row, name) for row in wanted]
    for name in branch.rows[0].observables:
        table[name] = [row.observables[name] for row in wanted]
    table["static"] = [float(row.stability.static) for row in wanted]
    table["iteration"] = [row.stability.iteration for row in wanted]
    for name in sorted({name for row in wanted for name in row.stability.rates}):
        table[f"rate_{name}"] = [row.stability.rates.get(name, np.nan) for row in wanted]
    rows = {name: np.array(column) for name, column in table.items()}
    return _stacked([rows, _absent(item, start, missing, "absent")]) if missing else rows


def _absent(item: Slice, start: str, grid: Sequence[float], status: str) -> Table:
    n = len(grid)
    return {
        item.first: np.array(grid),
        item.second: np.full(n, getattr(item.theory, item.second)),
        "start": np.array([start] * n),
        "status": np.array([status] * n),
    }


def _nothing(item: Slice, status: str) -> tuple[Table, Table]:
    """A slice that failed as a whole."""
    return _stacked([_absent(item, start, item.grid, status) for start in item.starts]), {}


def _events(item: Slice, found: Sequence[tuple[str, Any]]) -> Table:
    if not found:
        return {}
    table: dict[str, Any] = {
        item.second: [getattr(item.theory, item.second)] * len(found),
        "name": [t.name for _, t in found],
        "start": [start for start, _ in found],
        item.first: [t.parameter for _, t in found],
        "residual": [t.residual for _, t in found],
    }
    for k, name in enumerate(item.theory.order_parameters):
        table[name] = [float(t.states[0][k]) for _, t in found]
    return {name: np.array(column) for name, column in table.items()}


# ---- tables and files


def _stacked(tables: Sequence[Table]) -> Table:
    """Tables one below the other; a column that one lacks is nan there."""
    names = list(dict.fromkeys(name for table in tables for name in table))
    sizes = [next(iter(table.values())).size if table else 0 for table in tables]
    return {
        name: np.concatenate(
            [table[name] if name in table else np.full(n, np.nan) for table, n in zip(tables, sizes, strict=True) if n]
        )
        for name in names
    }


def _part(arrays: Mapping[str, Any], prefix: str) -> Table:
    return {name.removeprefix(prefix): column for name, column in arrays.items() if name.startswith(prefix)}


def _save_slices(path: str | os.PathLike[str], key: Mapping[str, Any], done: Mapping[int, tuple[Table, Table]]) -> None:
    arrays = {
        f"{k}.{part}.{name}": column
        for k in sorted(done)
        for part, table in zip(("table", "transitions"), done[k], strict=True)
        for name, column in table.items()
    }
    write_archive(path, "diagram checkpoint", {"key": key, "slices": sorted(done)}, arrays)


def _load_slices(path: str | os.PathLike[str], key: Mapping[str, Any]) -> dict[int, tuple[Table, Table]]:
    header, arrays = read_archive(path, "diagram checkpoint")
    differ = [name for name, value in key.items() if header["key"].get(name) != value]
    if differ:
        raise ValueError(f"checkpoint={str(path)!r} belongs to another diagram: its {', '.join(differ)} differ")
    return {k: (_part(arrays, f"{k}.table."), _part(arrays, f"{k}.transitions.")) for k in header["slices"]}


def _write_csv(path: str | os.PathLike[str], table: Table) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
