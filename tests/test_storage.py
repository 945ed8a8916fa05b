"""Files are written completely or not at all. Files of the cache that other users can write to are not read."""

import errno
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from glassgate.engines.llvm_cpu import cache
from glassgate.storage import cache_folder, read_trusted, replaced_file, replaced_files, write_file


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


def test_a_kernel_under_another_name_is_compiled_again(tmp_path: Path) -> None:
    cache.write(tmp_path / "a.kernel", cache.CacheEntry("work", b"code"))
    (tmp_path / "a.kernel").rename(tmp_path / "b.kernel")
    assert cache.read(tmp_path / "b.kernel") is None


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


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can become larger than 1,000 bytes."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def write_folder(path: Path, content: bytes) -> None:
    """Write two files into a new folder."""
    with replaced_files(path.parent / "new" / "folder", create=True) as folder:
        (folder / "small").write_bytes(b"x")
        (folder / path.name).write_bytes(content)


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_a_full_disk_leaves_the_old_file_and_the_error_names_it(
    write: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with full_disk(), pytest.raises(OSError, match="File too large") as raised:
        write(tmp_path / "a", b"x" * 100_000)
    assert raised.value.errno == errno.EFBIG
    assert raised.value.filename == str(tmp_path / "a" if write is write_file else tmp_path / "new" / "folder")
    assert raised.value.__notes__ == ["the file is not written: choose another path, or free disk space"]
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"a": b"old"}


def interrupt(writer: AbstractContextManager[Path], error: type[BaseException]) -> None:
    """Write a part of a file, and raise the error."""
    with writer as temporary:
        (temporary / "b" if temporary.is_dir() else temporary).write_bytes(b"part")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_interrupted_writer_leaves_nothing(error: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    for context in (lambda: replaced_file(tmp_path / "a"), lambda: replaced_files(tmp_path / "new", create=True)):
        with pytest.raises(error):
            interrupt(context(), error)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"a": b"old"}


def test_a_signal_during_an_import_inside_a_writer_leaves_nothing(tmp_path: Path) -> None:
    """`glassgate export` imports libraries while files are unfinished. A signal then ends the process at once."""
    (tmp_path / "library.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    (tmp_path / "out").mkdir()
    script = (
        "import sys; import glassgate.cli as cli; from glassgate.storage import replaced_files\n"
        "def command(words):\n"
        "    with replaced_files('out') as folder:\n"
        "        (folder / 'a').write_text('part')\n"
        "        import library\n"
        "cli.import_module = lambda name: type('', (), {'command': command})\n"
        "sys.exit(cli.main(['export']))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "glassgate export: terminated\n")
    assert not list((tmp_path / "out").iterdir())


def test_modes_links_and_devices(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_file(tmp_path / "a", b"new")
    finally:
        os.umask(umask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    (tmp_path / "a").chmod(0o604)
    (tmp_path / "link").symlink_to("a")
    write_file(tmp_path / "link", b"newer")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"newer"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o604
    write_file("/dev/null", b"nothing")
    assert Path("/dev/null").is_char_device()
    if Path("/dev/full").exists():
        with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
            write_file("/dev/full", b"x")
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*/none/a'"):
        write_file(tmp_path / "none" / "a", b"x")
