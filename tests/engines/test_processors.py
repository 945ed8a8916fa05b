"""How many threads a call may run on: by torch, by the processors of the process, and by limits on their time."""

import os
import subprocess
import sys

import pytest
import torch

from glassgate.engines import processors

AVAILABLE = processors.available
"""The function itself, which tests run without."""


@pytest.fixture
def process(tmp_path):
    """A folder like /proc/self of a process in the group /a/b, and the mounts of both versions of control groups."""
    (tmp_path / "cgroup").write_text("4:cpuset:/\n3:cpu,cpuacct:/a/b\n2:name=systemd:/x:y\n0::/a/b\n")
    mounts = ["20 1 0:19 / /proc rw - proc proc rw", "21 1 0:20 / /mnt/\xff rw - fuse rw"]
    for kind, options in (("cgroup2", "rw"), ("cgroup", "rw,cpu,cpuacct"), ("cgroup", "rw,cpuset")):
        folder = tmp_path / f"{kind},{options}"
        (folder / "a" / "b").mkdir(parents=True)
        mounts.append(f"31 23 0:28 / {folder} rw,relatime shared:9 - {kind} {kind} {options}")
    (tmp_path / "mountinfo").write_text("\n".join(mounts), encoding="latin-1")
    return tmp_path


def limit(folder, quota, period=100_000):
    folder.mkdir(parents=True, exist_ok=True)
    if "cgroup2" in str(folder):
        (folder / "cpu.max").write_text(f"{quota} {period}\n")
    else:
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (folder / "cpu.cfs_period_us").write_text(f"{period}\n")


@pytest.mark.parametrize("mount", ["cgroup2,rw", "cgroup,rw,cpu,cpuacct"])
@pytest.mark.parametrize("group", ["a/b", "a", "."])
@pytest.mark.parametrize(("quota", "most"), [(30_000, 1), (149_000, 1), (150_000, 2), (340_000, 3), (6_400_000, 64)])
def test_the_least_limit_of_the_groups_around_the_process(process, mount, group, quota, most):
    limit(process / mount / "a" / "c", 10_000)  # of other processes
    limit(process / mount, "max" if "cgroup2" in mount else -1)
    limit(process / mount / group, quota)
    assert processors.Limit(process).processors() == most


def test_a_container_sees_its_own_group_at_the_top(process):
    mounts = (process / "mountinfo").read_bytes()
    (process / "mountinfo").write_bytes(mounts.replace(b"0:28 / ", b"0:28 /a/b "))
    limit(process / "cgroup2,rw", 200_000)
    assert processors.Limit(process).processors() == 2
    (process / "cgroup").write_text("0::/../../elsewhere\n")
    assert processors.Limit(process).processors() == 2


@pytest.mark.parametrize("without", [[], ["cgroup"], ["mountinfo"], ["cgroup", "mountinfo"]])
def test_no_limit(process, without):
    for name in without:
        (process / name).unlink()
    assert processors.Limit(process).processors() == os.cpu_count()


def test_a_limit_is_read_again_each_second(process, monkeypatch):
    now, limits = [100.0], processors.Limit(process)
    monkeypatch.setattr(processors, "monotonic", lambda: now[0])
    for quota, seconds, most in ((300_000, 0.0, 3), (200_000, 0.9, 3), (200_000, 0.2, 2)):
        limit(process / "cgroup2,rw" / "a", quota)
        now[0] += seconds
        assert limits.processors() == most


@pytest.mark.parametrize(("available", "of_torch", "threads"), [(1, 4, 1), (3, 4, 3), (8, 4, 4), (8, 1, 1)])
def test_no_more_threads_than_torch_has_or_than_there_are_processors(monkeypatch, available, of_torch, threads):
    monkeypatch.setattr(processors, "available", lambda: available)
    torch.set_num_threads(of_torch)
    assert processors.threads() == threads


@pytest.mark.parametrize(
    ("work", "each", "usually", "contended"),
    [
        (0, 2, 1, 1),
        (2, 2, 1, 1),
        (3, 2, 2, 1),
        (9, 2, 4, 1),
        (10, 2, 4, 1),
        (11, 2, 4, 2),
        (99, 2, 4, 4),
        (21, 20, 2, 2),
    ],
)
def test_each_thread_has_enough_to_do(monkeypatch, work, each, usually, contended):
    """More, where it may have to wait while another process has its processor."""
    monkeypatch.setattr(processors, "TIME_SLICE_WORK", 10)
    monkeypatch.setattr(processors, "contention", processors.Contention())
    torch.set_num_threads(4)
    for now, threads in ((False, usually), (True, contended)):
        if now:
            processors.contention.note(True)
        assert processors.threads_for(work, each) == threads
        assert processors.thread_setting() == (4, now)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a system that pins no process")
def test_a_thread_that_is_pinned_while_it_runs():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert AVAILABLE() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert AVAILABLE() <= len(before)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="a system that pins no process")
def test_a_process_whose_threads_openmp_has_bound():
    """Then each runs on one processor, and they have all of them."""
    code = "from glassgate.engines import processors; print(processors._affinity())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"OMP_PROC_BIND": "true"}, capture_output=True, check=True
    )
    assert int(done.stdout) == len(os.sched_getaffinity(0))
