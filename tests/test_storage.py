"""The location of the cache, and its safety: files that other users can write to are not read."""

import os
import warnings
from pathlib import Path

import pytest

from glassgate.engines.llvm_cpu import cache
from glassgate.storage import cache_folder, read_trusted


@pytest.mark.parametrize("given", ["", "relative", None])
def test_a_relative_cache_path_is_ignored(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLASSGATE_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/of/me")
    monkeypatch.setattr("sys.platform", "linux")
    if given is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert cache_folder() == Path("/home/of/me/.cache/glassgate")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/glassgate")


def test_without_a_home_the_cache_is_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GLASSGATE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert str(os.getuid()) in str(cache_folder())


def test_a_kernel_that_others_can_write_is_compiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    kernel = cache.CacheEntry("work", b"code")
    path = folder / "a.kernel"
    cache.write(path, kernel)
    assert cache.read(path) == kernel
    for place, open_to_all in ((path, 0o666), (folder, 0o777)):
        before = place.stat().st_mode
        place.chmod(open_to_all)
        cache._warn.cache_clear()
        with pytest.warns(RuntimeWarning, match=f"chmod -R go-w {folder}"):
            assert cache.read(path) is None
        assert cache.read(path) is None  # and warns once
        (folder / "b.kernel").unlink(missing_ok=True)
        cache.write(folder / "b.kernel", kernel)
        assert (folder / "b.kernel").exists() == (place == path)
        place.chmod(before)
    assert cache.read(path) == kernel
    path.rename(folder / "real")
    path.symlink_to(folder / "real")
    assert cache.read(path) is None


def test_an_empty_folder_that_others_can_write_to_is_reported_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    cache._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match=f"other users can write to {tmp_path}"):
        cache.write(tmp_path / "a.kernel", cache.CacheEntry("work", b"code"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.write(tmp_path / "a.kernel", cache.CacheEntry("work", b"code"))
    assert not any(tmp_path.iterdir())


def test_a_pipe_in_place_of_a_kernel_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.kernel")
    with pytest.raises(OSError, match="not a regular file"):
        read_trusted(tmp_path / "a.kernel")
    assert cache.read(tmp_path / "a.kernel") is None
