"""The number of threads of a call: torch's setting, the affinity of the process, and limits of control groups."""

import os
import subprocess
import sys
from functools import partial

import pytest
import torch

from glassgate.engines import processors
from glassgate.system.control_groups import processor_limits


@pytest.fixture
def process(tmp_path):
    """A folder like /proc/self of a process in group /a/b, with mounts of both versions of control groups (cgroups)."""
    (tmp_path / "cgroup").write_text("4:cpuset:/\n3:cpu,cpuacct:/a/b\n2:name=systemd:/x:y\n0::/a/b\n")
    mounts = ["20 1 0:19 / /proc rw - proc proc rw", "21 1 0:20 / /mnt/\xff rw - fuse rw"]
    for kind, options in (("cgroup2", "rw"), ("cgroup", "rw,cpu,cpuacct"), ("cgroup", "rw,cpuset")):
        folder = tmp_path / f"{kind},{options}"
        (folder / "a" / "b").mkdir(parents=True)
        mounts.append(f"31 23 0:28 / {folder} rw,relatime shared:9 - {kind} {kind} {options}")
    (tmp_path / "mountinfo").write_text("\n".join(mounts), encoding="latin-1")
    return tmp_path


def set_limit(folder, quota, period=100_000):
    folder.mkdir(parents=True, exist_ok=True)
    if "cgroup2" in str(folder):
        (folder / "cpu.max").write_text(f"{quota} {period}\n")
    else:
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (folder / "cpu.cfs_period_us").write_text(f"{period}\n")


def limit_of(process):
    return processors.Limit(partial(processor_limits, process))


@pytest.mark.parametrize("mount", ["cgroup2,rw", "cgroup,rw,cpu,cpuacct"])
@pytest.mark.parametrize("group", ["a/b", "a", "."])
@pytest.mark.parametrize(
    ("quota", "expected"), [(30_000, 1), (149_000, 1), (150_000, 2), (340_000, 3), (6_400_000, 64)]
)
def test_the_smallest_limit_of_all_enclosing_groups_applies(process, mount, group, quota, expected):
    set_limit(process / mount / "a" / "c", 10_000)  # a group of other processes
    set_limit(process / mount, "max" if "cgroup2" in mount else -1)
    set_limit(process / mount / group, quota)
    assert limit_of(process).processors() == expected


def test_the_limit_of_a_container_whose_group_is_the_mounted_group(process):
    mounts = (process / "mountinfo").read_bytes()
    (process / "mountinfo").write_bytes(mounts.replace(b"0:28 / ", b"0:28 /a/b "))
    set_limit(process / "cgroup2,rw", 200_000)
    assert limit_of(process).processors() == 2
    (process / "cgroup").write_text("0::/../../elsewhere\n")
    assert limit_of(process).processors() == 2


@pytest.mark.parametrize("missing", [[], ["cgroup"], ["mountinfo"], ["cgroup", "mountinfo"]])
def test_without_a_limit_all_processors_are_used(process, missing):
    for name in missing:
        (process / name).unlink()
    assert limit_of(process).processors() == os.cpu_count()


def test_the_limit_is_cached_for_a_second(process, monkeypatch):
    now, limit = [100.0], limit_of(process)
    monkeypatch.setattr(processors, "monotonic", lambda: now[0])
    for quota, seconds, expected in ((300_000, 0.0, 3), (200_000, 0.9, 3), (200_000, 0.2, 2)):
        set_limit(process / "cgroup2,rw" / "a", quota)
        now[0] += seconds
        assert limit.processors() == expected


@pytest.mark.parametrize(("available", "torch_threads", "expected"), [(1, 4, 1), (3, 4, 3), (8, 4, 4), (8, 1, 1)])
def test_threads_are_limited_by_torch_and_by_processors(monkeypatch, available, torch_threads, expected):
    monkeypatch.setattr(processors, "available", lambda: available)
    torch.set_num_threads(torch_threads)
    assert processors.threads() == expected


@pytest.mark.parametrize(
    ("work", "grain", "without_contention", "with_contention"),
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
def test_each_thread_has_a_minimum_of_work(monkeypatch, work, grain, without_contention, with_contention):
    """Under CPU contention the minimum is larger, because a thread may have to wait for another process."""
    monkeypatch.setattr(processors, "TIME_SLICE_WORK", 10)
    monkeypatch.setattr(processors, "contention", processors.Contention())
    torch.set_num_threads(4)
    for contended, expected in ((False, without_contention), (True, with_contention)):
        if contended:
            processors.contention.note(True)
        assert processors.threads_for(work, grain) == expected
        assert processors.thread_setting() == (4, contended)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_available_processors_follow_the_affinity(monkeypatch):
    monkeypatch.undo()  # tests have 64 processors otherwise
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert processors.available() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert processors.available() <= len(before)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_all_processors_are_available_if_openmp_binds_each_thread_to_one():
    code = "from glassgate.engines import processors; print(processors._affinity())"
    completed = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"OMP_PROC_BIND": "true"}, capture_output=True, check=True
    )
    assert int(completed.stdout) == len(os.sched_getaffinity(0))
