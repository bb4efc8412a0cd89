"""Phase diagrams: the same table with any executor, after any kill, and nothing lost to a failure."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import statmech_attn as sa

MODEL = sa.PositionalSemantic(alpha=1.0)
GRID = {"alpha": [1.0, 1.2, 1.4], "omega": [0.28, 0.3, 0.32]}
STARTS = ("semantic", "positional")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def diagram():
    return sa.phase_diagram(MODEL, starts=STARTS, **GRID)


def same(one, other):
    for part in ("table", "transitions"):
        a, b = getattr(one, part), getattr(other, part)
        assert list(a) == list(b)
        assert all(a[name].tobytes() == b[name].tobytes() for name in a)
    return True


def test_rows_are_the_solver_s_states(diagram):
    assert diagram.failures == ()
    assert set(diagram.table["status"]) == {"followed"}
    for start in STARTS:
        solution = sa.solve(sa.replace(MODEL, alpha=1.2, omega=0.3), start, accuracy=1e-4)
        assert diagram.grid("q", start)[1, 1] == pytest.approx(solution["q"], rel=1e-4)
        assert diagram.grid("potential", start)[1, 1] == pytest.approx(solution.train_loss, rel=1e-6)
    assert diagram.grid("static", "semantic").min() == 1
    omega, alpha = diagram.line("coexistence", "semantic|positional")
    assert omega == pytest.approx(GRID["omega"])
    assert alpha[1] == pytest.approx(1.2515, abs=1e-3)
    difference = diagram.grid("potential", "semantic") - diagram.grid("potential", "positional")
    assert np.array_equal(difference < 0, np.array(GRID["alpha"])[:, None] > alpha)
    with pytest.raises(KeyError, match="columns are"):
        diagram.grid("nothing", "semantic")


def test_absent_branches_are_marked():
    found = sa.phase_diagram(MODEL, starts=("semantic",), alpha=[0.3, 0.5, 0.7, 0.9], omega=[0.3])
    assert found.table["status"].tolist() == ["followed", "absent", "absent", "absent"]
    assert np.isnan(found.grid("theta", "semantic")[:3, 0]).all()
    nothing = sa.phase_diagram(MODEL, starts=("semantic",), alpha=[0.2, 0.4], omega=[0.3])
    assert all(status.startswith("not found: ") for status in nothing.table["status"])


def test_files(diagram, tmp_path):
    diagram.save(tmp_path / "diagram.npz")
    assert same(sa.load_diagram(tmp_path / "diagram.npz"), diagram)
    diagram.to_csv(tmp_path / "diagram.csv")
    lines = (tmp_path / "diagram.csv").read_text().splitlines()
    assert len(lines) == 1 + len(STARTS) * 9
    assert lines[0].startswith("alpha,omega,start,status,q,m,theta,V,potential")
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    assert isinstance(diagram.to_pandas(), pandas.DataFrame)
    labelled = diagram.to_xarray()
    assert isinstance(labelled, xarray.Dataset)
    cell = labelled["theta"].sel(start="semantic", alpha=1.2, omega=0.3)
    assert float(cell) == diagram.grid("theta", "semantic")[1, 1]


@pytest.mark.slow
def test_two_processes_give_the_same_table(diagram):
    with sa.local_pool(2) as executor:
        assert same(sa.phase_diagram(MODEL, starts=STARTS, executor=executor, **GRID), diagram)


class Failing(concurrent.futures.Executor):
    """An executor whose workers fail on some slices, and which dies after a number of them."""

    def __init__(self, bad, dies_after=99):
        self.bad, self.left = bad, dies_after

    def submit(self, function, item):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = concurrent.futures.Future()
        if item.theory.omega in self.bad:
            future.set_exception(MemoryError("the worker was lost"))
        else:
            future.set_result(function(item))
        return future


def test_failing_workers_lose_nothing(diagram, tmp_path):
    path = tmp_path / "checkpoint.npz"
    found = sa.phase_diagram(MODEL, starts=STARTS, executor=Failing([0.3]), checkpoint=path, **GRID)
    assert found.failures == ("omega=0.3: MemoryError: the worker was lost",)
    lost = found.table["omega"] == 0.3
    assert all(s.startswith("failed: ") for s in found.table["status"][lost])
    assert set(found.table["status"][~lost]) == {"followed"}
    assert np.isnan(found.table["q"][lost]).all()
    neighbours = diagram.table["omega"] != 0.3
    assert found.table["q"][~lost].tobytes() == diagram.table["q"][neighbours].tobytes()
    # the same call computes what is missing, and only that
    submitted = []
    again = sa.phase_diagram(
        MODEL, starts=STARTS, checkpoint=path, callback=lambda done, total: submitted.append(done), **GRID
    )
    assert submitted == [3]
    assert same(again, diagram)


def test_a_dying_executor_is_a_failure_of_the_rest():
    found = sa.phase_diagram(MODEL, starts=STARTS, executor=Failing([], dies_after=1), **GRID)
    assert len(found.failures) == 2
    assert np.sum(found.table["status"] == "followed") == 6


@pytest.mark.slow
def test_killed_process_pool():
    """A worker that is killed breaks the pool: an error sentence for every slice that is lost, no exception."""
    with sa.local_pool(1) as executor:
        executor.submit(os.kill, executor.submit(os.getpid).result(), signal.SIGKILL)
        found = sa.phase_diagram(MODEL, starts=STARTS, executor=executor, **GRID)
    assert len(found.failures) == 3
    assert all("BrokenProcessPool" in sentence for sentence in found.failures)


SCRIPT = """
import sys, statmech_attn as sa
def report(done, total):
    print(done, flush=True)
sa.phase_diagram(sa.PositionalSemantic(alpha=1.0), starts=("semantic", "positional"), checkpoint=sys.argv[1],
                 callback=report, alpha=[1.0, 1.2, 1.4], omega=[0.28, 0.3, 0.32])
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.4, 1.1])
def test_killed_and_resumed(diagram, tmp_path, delay):
    path = tmp_path / "checkpoint.npz"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "1\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    steps = []
    found = sa.phase_diagram(
        MODEL, starts=STARTS, checkpoint=path, callback=lambda done, total: steps.append(done), **GRID
    )
    assert len(steps) < 3  # what was finished was kept
    assert same(found, diagram)


def test_wrong_checkpoints(diagram, tmp_path):
    path = tmp_path / "checkpoint.npz"
    sa.phase_diagram(MODEL, starts=("semantic",), checkpoint=path, alpha=[1.0, 1.1], omega=[0.3])
    with pytest.raises(ValueError, match="belongs to another diagram: its axes differ"):
        sa.phase_diagram(MODEL, starts=("semantic",), checkpoint=path, alpha=[1.0, 1.2], omega=[0.3])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a complete result"):
        sa.phase_diagram(MODEL, starts=("semantic",), checkpoint=path, alpha=[1.0, 1.1], omega=[0.3])
    diagram.save(path)
    with pytest.raises(ValueError, match="holds a 'phase diagram'"):
        sa.phase_diagram(MODEL, starts=("semantic",), checkpoint=path, alpha=[1.0, 1.1], omega=[0.3])


@pytest.mark.parametrize(
    ("axes", "kind", "message"),
    [
        ({"alpha": [1.0, 2.0]}, TypeError, "needs two parameters with their grids, not alpha"),
        ({"alpha": [1.0, 2.0], "beta": [1.0]}, TypeError, "'beta' is not a parameter"),
        ({"alpha": [2.0, 1.0], "omega": [0.1]}, ValueError, r"alpha=\[2.0, 1.0\] must be finite and increase"),
        ({"alpha": [1.0, 2.0], "omega": []}, ValueError, "omega"),
        ({"alpha": [1.0, 2.0], "omega": [0.5, 1.5]}, ValueError, "omega=1.5"),
        ({"alpha": [1.0], "omega": [0.5]}, ValueError, "at least two values"),
        ({"alpha": [1.0, 2.0], "omega": [0.5], "starts": ["none"]}, ValueError, "must be some of uninformed"),
    ],
)
def test_wrong_input(axes, kind, message):
    with pytest.raises(kind, match=message):
        sa.phase_diagram(MODEL, **axes)


@pytest.mark.slow
def test_dask_cluster(diagram):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = sa.phase_diagram(MODEL, starts=STARTS, executor=client.get_executor(), **GRID)
    assert same(found, diagram)
