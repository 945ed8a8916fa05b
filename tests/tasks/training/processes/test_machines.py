"""The command line in several processes: killed, with torchrun, and on two hosts.

The tests take minutes; `make machines` runs them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassgate.tasks.runs import CHECKPOINT, METRICS
from tests.tasks.corpus import sentences, write_conllu

pytestmark = pytest.mark.machines

PROGRAM = [sys.executable, "-m", "glassgate"]
SIZES = ["--hidden-size", "8", "--embedding-size", "8", "--character-size", "0", "--save-every", "1"]
HOSTS, CARDS = ("gg-test-a", "gg-test-b"), ("gg-a", "gg-b")


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Return a command that trains for some seconds."""
    train = write_conllu(tmp_path / "train.conllu", sentences(4000))
    dev = write_conllu(tmp_path / "dev.conllu", sentences(50, seed=1))
    return ["train", "tagging", f"--data={train}", f"--dev={dev}", f"--run={tmp_path / 'run'}", "--epochs=2", *SIZES]


def started(words: list[str], **others: str) -> "subprocess.Popen[str]":
    """Start a command whose output goes to a pipe."""
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | others)


def wait_for(file: Path, process: "subprocess.Popen[str]") -> None:
    while not file.exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


def test_killed_in_mid_epoch_and_resumed(words: list[str], tmp_path: Path) -> None:
    process = started([*PROGRAM, *words, "--devices=2"])
    wait_for(tmp_path / "run" / CHECKPOINT, process)
    workers = subprocess.run(
        ["pgrep", "-P", str(process.pid)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    os.kill(int(workers[1]), signal.SIGKILL)
    began = time.monotonic()
    said = process.communicate()[0]
    assert time.monotonic() - began < 60
    assert process.returncode == 128 + signal.SIGKILL
    assert "process 1 of 2 was ended by SIGKILL" in said
    assert re.search(rf"another process is gone: .* --resume {tmp_path}/run", said)
    assert not (tmp_path / "run" / METRICS).exists()
    done = subprocess.run([*PROGRAM, "train", "--resume", tmp_path / "run"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / METRICS).exists()


def test_ctrl_c_stops_all_processes_with_one_message(words: list[str], tmp_path: Path) -> None:
    process = started([*PROGRAM, *words, "--devices=2"])
    wait_for(tmp_path / "run" / CHECKPOINT, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[0]
    assert process.returncode == 130
    assert said.count("resume with: ") == said.count("interrupted") == 1


def test_torchrun(words: list[str], tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = started([*torchrun, "-m", "--", "glassgate", *words])
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert said.count("try next:") == 1


@pytest.fixture
def hosts() -> Iterator[None]:
    """Two connected network namespaces, which behave like two machines."""
    ip = shutil.which("ip")
    if ip is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")

    def run(*words: str) -> None:
        subprocess.run([ip, *words], check=True)

    for host in HOSTS:
        run("netns", "add", host)
    try:
        run("link", "add", "gg-a", "type", "veth", "peer", "name", "gg-b")
        for number, (host, card) in enumerate(zip(HOSTS, CARDS, strict=True), start=1):
            run("link", "set", card, "netns", host)
            for each in ("addr add 10.77.0.{}/24 dev {}", "link set {1} up", "link set lo up"):
                run("-n", host, *each.format(number, card).split())
        yield
    finally:
        for host in HOSTS:
            run("netns", "del", host)


def test_two_hosts(hosts: None, words: list[str], tmp_path: Path) -> None:
    machines = []
    for number, host in enumerate(HOSTS):
        place = ["--nnodes=2", f"--node-rank={number}", "--master-addr=10.77.0.1", "--master-port=29511"]
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *place,
            "--nproc-per-node=1",
            "-m",
            "--",
            "glassgate",
        ]
        machines.append(started(["ip", "netns", "exec", host, *torchrun, *words], GLOO_SOCKET_IFNAME=CARDS[number]))
    said = [each.communicate()[0] for each in machines]
    assert [each.returncode for each in machines] == [0, 0], said
    assert "shared by 2 processes on 2 machines" in said[0]
    assert "try next:" not in said[1]
    assert (tmp_path / "run" / METRICS).exists()
