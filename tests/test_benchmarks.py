"""The benchmarks on tiny workloads: processes, checks of results, files, resumption, tables and plots."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.common.environment import ROOT, environment
from experiments.common.store import Store
from experiments.common.summaries import quartiles
from experiments.speed import gpu, report, worker
from experiments.speed.__main__ import STUDIES, main, on_engine, run
from experiments.speed.gpu_parts import Case
from experiments.speed.interleaved import Budget, PeerError, run_interleaved
from experiments.speed.kinds import against_torch
from experiments.speed.measure import Bench
from experiments.speed.row import Point, Row
from experiments.speed.rows import ROWS
from experiments.speed.studies import limited
from experiments.speed.workload import Workload

TINY = [Workload(3, 2, 4), Workload(4, 1, 5, ragged=True)]
SHORT = Budget(0.0, sample=0.001, patience=1)
ROW = on_engine(Row("tiny", "a tiny LSTM", "nn.LSTM", against_torch(TINY), 1e9, 1e-9), "reference")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """The processes, which the tests share, because each takes seconds to start."""
    with Bench(1, SHORT) as shared:
        yield shared


def contents(folder: Path) -> dict:
    (content,) = report.read(folder)
    return content


def test_a_run_writes_figures_with_errors_and_continues_with_missing_points(bench, tmp_path, capsys):
    run([replace(ROW, points=ROW.points[:1])], tmp_path, bench)
    (first,) = contents(tmp_path)["points"]
    run([ROW], tmp_path, bench)
    assert "1 points are measured, 1 are missing" in capsys.readouterr().out
    both = contents(tmp_path)
    assert both["points"][0] == first
    assert {"row", "what", "against", "of", "wanted", "environment", "quick", "points"} == both.keys()
    assert both["environment"]["versions"]["torch"] == torch.__version__
    for point in both["points"]:
        assert point["low"] <= point["figure"] <= point["high"]
        assert point["against"] == "nn.LSTM"
        assert point["rounds"] >= 3
        for name in ("ours", "nn.LSTM"):
            assert 0 < point["contenders"][name]["error"] < 1e-5
            assert point["contenders"][name]["seconds"] > 0
    table = report.page([both])
    assert "| a tiny LSTM | nn.LSTM | **" in table  # bold, because the target is 1e9
    assert "| >= 1e+09 |" in table
    assert "2 of 2" in table
    assert "L=4 N=1 H=5" in table


def test_a_failed_point_has_the_last_line_of_the_error(bench, tmp_path):
    ours = ROW.points[0].ours
    with_unknown_cell = Point(replace(ours, cell="Absent"), {"nn.LSTM": replace(ours, peer="stock")})
    broken = Point(ours, {"another": replace(ours, peer="stock", cell="FourGates")})
    run([replace(ROW, points=(with_unknown_cell, broken))], tmp_path, bench)
    first, second = contents(tmp_path)["points"]
    assert "has no attribute 'Absent'" in first["missing"]
    assert second["missing"] == "another: KeyError: 'FourGates'"
    assert "**missing**" in report.page([contents(tmp_path)])


def test_a_figure_of_another_version_of_the_code_is_measured_again():
    first, second = ROW.points
    settings = [{"environment": {"code": code}, "quick": False} for code in "ab"]
    assert ROW.key(first, settings[0]) == ROW.key(replace(first), dict(settings[0]))
    assert len({str(ROW.key(point, setting)) for point in (first, second) for setting in settings}) == 4


@pytest.mark.parametrize("name", ["output", "c_n", "grad weight_hh_l0"])
@pytest.mark.parametrize("peer_name", ["ours", "stock"])
def test_wrong_results_raise_an_error(name, peer_name, tmp_path):
    workload, path = replace(ROW.points[0].ours, peer=peer_name), str(tmp_path / "truth.pt")
    worker.Peer("ours").truth(workload, path)
    peer = worker.Peer(peer_name)
    results_of_peer = peer.module.prepare(workload).results()
    assert worker._check(workload, results_of_peer, path) < 1e-5
    with pytest.raises(AssertionError, match=f"{name}: off by"):
        worker._check(workload, results_of_peer | {name: results_of_peer[name] * 1.001}, path)


@pytest.mark.parametrize("peer_name", ["ours", "stock"])
def test_a_language_model_learns_and_is_checked_at_its_initial_weights(peer_name, tmp_path):
    workload, path = replace(ROW.points[0].ours, do="model", peer=peer_name), str(tmp_path / "truth.pt")
    worker.Peer("ours").truth(workload, path)
    model = worker.Peer(peer_name).module.prepare(workload)
    first, *_, last = [model.run().item() for _ in range(5)]
    assert last < first
    results_of_peer = model.results()
    assert results_of_peer["loss"].item() == pytest.approx(first)
    assert worker._check(workload, results_of_peer, path) < 1e-5


def test_the_last_steps_of_a_long_sequence_are_checked(tmp_path):
    workload, path = Workload(20_001, 1, 2, do="inference", peer="stock"), str(tmp_path / "truth.pt")
    worker.Peer("ours").truth(workload, path)
    results_of_peer = worker.Peer("stock").module.prepare(workload).results()
    assert worker._check(workload, results_of_peer, path) < 1e-5
    with pytest.raises(AssertionError, match="output: off by"):
        worker._check(workload, results_of_peer | {"output": results_of_peer["output"] + 1e-3}, path)


def test_processes_run_in_turn_and_are_stopped_between_calls(bench):
    workers = bench.workers
    workers.drop()
    contenders = {"ours": ROW.points[0].ours, "nn.LSTM": ROW.points[0].others["nn.LSTM"]}
    for workload in contenders.values():
        workers.ask(workload.peer, "prepare", workload, None)
    times = run_interleaved(workers, contenders, Budget(0.0, least_rounds=4))
    assert [len(values) for values in times.values()] == [4, 4]
    for process in workers.running.values():
        state = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(") ")[2][0]
        assert state == "T"
    with pytest.raises(PeerError, match="KeyError"):
        workers.ask("stock", "median", replace(contenders["nn.LSTM"], H=7), 0.0)
    assert "stock" not in workers.running


def test_quartiles_of_an_odd_number_of_ratios():
    assert quartiles([3.0, 1.0, 2.0]) == (1.5, 2.0, 2.5)
    assert quartiles([4.0]) == (4.0, 4.0, 4.0)


def test_names_of_rows_and_points_of_a_row_are_unique():
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.points, row.name
        assert len({str(point) for point in row.points}) == len(row.points), row.name


def test_an_unknown_row_raises_an_error():
    with pytest.raises(SystemExit, match="no row 'lsmt-training'; there are: lstm-training, "):
        main(["lsmt-training"])


def test_peers_may_have_ten_times_the_error_of_glassgate(tmp_path):
    workload, path = ROW.points[0].ours, str(tmp_path / "truth.pt")
    peer = worker.Peer("ours")
    peer.truth(workload, path)
    results_of_peer = peer.module.prepare(workload).results()
    inaccurate = results_of_peer | {"output": results_of_peer["output"] + 5e-6 * results_of_peer["output"].abs().max()}
    with pytest.raises(AssertionError, match="output: off by"):
        worker._check(workload, inaccurate, path)
    assert worker._check(replace(workload, peer="stock"), inaccurate, path) < 1e-5


def test_the_plots_are_generated_from_the_files(tmp_path):
    pytest.importorskip("matplotlib", reason="the plot needs the extra bench")
    store, setting = Store(tmp_path), {"environment": environment(1), "quick": False}
    details = {"ours": {"error": 1e-7, "seconds": 1.0}, "nn.LSTM": {"error": 2e-7, "seconds": 2.0}}
    figure = {"figure": 2.0, "low": 1.9, "high": 2.1, "against": "nn.LSTM", "rounds": 3, "contenders": details}
    memory = replace(ROW, name="memory", against="nn.LSTM", cost=True)
    unchecked = figure | {"contenders": {"ours": {"bytes": 1.0}, "nn.LSTM": {"bytes": 2.0}}}
    for row, values in ((ROW, figure), (memory, unchecked)):
        store.add(row.name, {"key": "1"}, {"at": row.points[0].at, **values}, **row.head, **setting)
    report.write(tmp_path)
    assert "| a tiny LSTM | nn.LSTM | **2** |" in (tmp_path / "table.md").read_text()
    for plot in ("plot.png", "by-size.png"):
        assert (tmp_path / plot).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("folder", [path.parent for path in (ROOT / "benchmarks/results").glob("**/table.md")], ids=str)
def test_the_tables_of_the_page_are_generated_from_the_stored_results(folder):
    assert report.page(report.read(folder)) == (folder / "table.md").read_text()


def test_calls_under_limits_have_times_or_the_reason_why_they_have_none(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(limited, "POINTS", on_engine(ROW, "reference").points[:1])
    _, limits, cell, _ = limited.table_row(bench, limited.Limits(1, 1), 0.01, 3).split("|")
    assert limits == " 1 threads, 1 processors "
    assert all(float(time) > 0 for time in cell.split("/"))
    monkeypatch.setattr(limited, "GROUPS", tmp_path / "absent")
    row = limited.table_row(bench, limited.Limits(2, time=0.5), 0.01, 1)
    assert (
        "| 2 threads, 2 processors, processor time of 0.5 | not measured, because no control group can be created: "
        in row
    )


@pytest.mark.parametrize(
    ("version", "file", "text"), [(1, "cpu.cfs_quota_us", "150000"), (2, "cpu.max", "150000 100000")]
)
def test_a_control_group_sets_the_limit_and_contains_the_process(version, file, text, tmp_path, monkeypatch):
    groups = tmp_path / "cpu" if version == 1 else tmp_path
    groups.mkdir(exist_ok=True)
    monkeypatch.setattr(limited, "GROUPS", tmp_path)
    with limited.control_group(1.5) as enter:
        enter()
        (folder,) = groups.iterdir()
        assert (folder / file).read_text() == text
        assert int((folder / "cgroup.procs").read_text()) == os.getpid()


def test_the_gpu_benchmarks_need_a_gpu_and_their_page_has_a_table(tmp_path):
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match="expected a CUDA GPU, found none"):
            gpu.main(tmp_path)
    store = Store(tmp_path)
    about = {"chip": "a chip", "versions": {"torch": "2.13"}}
    store.add("gpu", {"part": "plain", "case": "LSTM"}, {"ours": [1.25, 3.0]}, **about)
    store.add("gpu", {"part": "plain", "case": "GRU"}, {"ours": [1.0, 2.5], "other": [0.5, 1.5]})
    text = gpu.page(*store.read("gpu"))
    assert "Measured on one a chip, PyTorch 2.13" in text
    assert "| case | ours | other |\n|---|---|---|\n| LSTM | 1.25 / 3 |  |\n| GRU | 1 / 2.5 | 0.5 / 1.5 |" in text


def test_the_gpu_benchmarks_stop_after_the_time_limit_and_continue_in_the_next_run(tmp_path, monkeypatch):
    count = iter(range(10))
    measured = []

    def part(bench):
        """Three rows."""
        for name in "abc":
            yield Case(name, lambda name=name: measured.append(name) or {"number": next(count)})

    monkeypatch.setattr(gpu, "PARTS", {"part": part})
    monkeypatch.setattr(gpu, "is_interpreted", lambda: True)
    monkeypatch.setattr(gpu, "LIMIT", -1.0)
    gpu.main(tmp_path, quick=True)
    assert measured == []
    monkeypatch.setattr(gpu, "LIMIT", 600.0)
    Store(tmp_path).add("gpu", {"part": "part", "case": "a"}, {"number": 7}, chip=gpu.chip())
    gpu.main(tmp_path, quick=True)
    assert measured == ["b", "c"]
    assert [point["number"] for point in Store(tmp_path).points("gpu")] == [7, 0, 1]


def test_a_failed_case_of_the_gpu_benchmarks_does_not_stop_the_others(tmp_path, monkeypatch):
    broken = {"b"}

    def case(name):
        if name in broken:
            raise RuntimeError("out of memory\nat line 3")
        return {"number": 1}

    def part(bench):
        """Three rows."""
        return (Case(name, lambda name=name: case(name)) for name in "abc")

    monkeypatch.setattr(gpu, "PARTS", {"part": part})
    monkeypatch.setattr(gpu, "is_interpreted", lambda: True)

    def rows():
        gpu.main(tmp_path, quick=True)
        return [{k: v for k, v in p.items() if k not in gpu.OMITTED} for p in Store(tmp_path).points("gpu")]

    failed = {"case": "b", "error": "RuntimeError: out of memory"}
    assert rows() == [{"case": "a", "number": 1}, failed, {"case": "c", "number": 1}]
    broken.clear()
    assert rows()[1] == {"case": "b", "number": 1}
    with pytest.raises(SystemExit, match="expected parts among part, got speed"):
        gpu.main(tmp_path, quick=True, parts=["speed"])
    broken.add("d")
    monkeypatch.setitem(gpu.PARTS, "part", lambda bench: [Case("d", lambda: case("d"))])
    monkeypatch.setattr(gpu, "is_usable", lambda device: False)
    with pytest.raises(SystemExit, match="the GPU cannot be used after d; run the command again"):
        gpu.main(tmp_path, quick=True)


@pytest.mark.gpu
def test_the_gpu_benchmarks_run_in_the_interpreter(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "benchmarks", "gpu", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    points = Store(tmp_path).points("gpu")
    assert {point["part"] for point in points} == {*gpu.PARTS}
    assert not [point for point in points if "error" in point]
    assert all(point["output"] < 1e-2 for point in points if point["part"] == "errors")


def test_the_store_keeps_one_point_per_key_and_refuses_files_of_other_versions(tmp_path):
    store = Store(tmp_path)
    store.add("file", {"case": "a", "seed": 1}, {"value": 1}, chip="x")
    store.add("file", {"case": "b", "seed": 1}, {"value": 2})
    store.add("file", {"case": "a", "seed": 1}, {"value": 3})
    assert store.read("file")[0] == {"chip": "x"}
    assert [point["value"] for point in store.points("file")] == [3, 2]
    assert store.find("file", {"seed": 1})["value"] == 2
    assert store.find("file", {"seed": 2}) is None
    assert len((tmp_path / "file.jsonl").read_text().splitlines()) == 3  # the head and the points
    store.keep("file", [{"case": "b"}, {"case": "c"}])
    assert [point["case"] for point in Store(tmp_path).points("file")] == ["b"]
    (tmp_path / "old.json").write_text('{"chip": "x", "points": [{"case": "a"}]}')
    assert store.names() == ["file", "old"]
    assert store.read("old") == ({"chip": "x"}, [{"case": "a"}])
    store.add("old", {"case": "b"}, {})
    assert [point["case"] for point in store.points("old")] == ["a", "b"]
    assert store.names() == ["file", "old"]
    (tmp_path / "other.json").write_text('{"chip": "x", "part": []}')
    with pytest.raises(SystemExit, match=r"other.json: expected a list of points, got a file of another version"):
        store.points("other")


@pytest.mark.parametrize("name", STUDIES)
def test_each_study_has_options_and_a_description(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert f"usage: python -m benchmarks {name}" in capsys.readouterr().out
