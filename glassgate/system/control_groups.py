"""The processor time that Linux's control groups (cgroups, version 1 or 2) permit, as in most containers."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROCESS = Path("/proc/self")
"""The folder that lists the groups of this process."""


def processor_limits(process: Path = PROCESS) -> Iterator[float]:
    """The limit of each group that contains the process, in seconds of processor time per second."""
    for group, version in _groups(process):
        with suppress(OSError, ValueError):
            if version == 2:
                quota, period = (group / "cpu.max").read_text("utf-8").split()
            else:
                quota, period = ((group / f"cpu.cfs_{name}_us").read_text("utf-8") for name in ("quota", "period"))
            if quota != "max" and int(quota) > 0:
                yield int(quota) / int(period)


def _groups(process: Path) -> Iterator[tuple[Path, int]]:
    """The folders of the groups that may limit the process, each with its cgroup version (1 or 2)."""
    memberships = [line.split(":", 2) for line in _lines(process / "cgroup")]
    paths = {name: path for _, names, path in memberships for name in names.split(",")}
    for line in _lines(process / "mountinfo"):
        # A line contains "... ROOT MOUNT_POINT ... - TYPE SOURCE OPTIONS"; ROOT is the mounted group.
        mount, _, filesystem = line.partition(" - ")
        (_, _, _, root, mount_point, *_), (kind, *_, options) = mount.split(), filesystem.split()
        version = {"cgroup2": 2, "cgroup": 1}.get(kind)
        if version == 2 or (version == 1 and "cpu" in options.split(",")):
            path = Path(paths.get("" if version == 2 else "cpu", root))
            inside = path.relative_to(root) if path.is_relative_to(root) and ".." not in path.parts else Path()
            yield from ((mount_point / group, version) for group in (inside, *inside.parents))


def _lines(file: Path) -> list[str]:
    with suppress(OSError):
        return file.read_text("utf-8", errors="replace").splitlines()
    return []
