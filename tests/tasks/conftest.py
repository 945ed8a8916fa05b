"""Training runs of these tests draw no pictures and do not call fsync.

Both take longer than the training. Without fsync, files can only be lost in a power failure.
"""

import importlib.util
import os
from collections.abc import Iterator

import pytest

from glassgate.tasks.pictures import charts
from glassgate.tasks.runs import Run


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(charts, "find_spec", lambda name: None)
        yield


@pytest.fixture(scope="module")
def pictures(_no_pictures: None) -> Iterator[None]:
    """Draw pictures in the tests of a module that request this fixture, and in the tests after them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(charts, "find_spec", importlib.util.find_spec)
        yield


@pytest.fixture(scope="module")
def kept_checkpoints() -> Iterator[None]:
    """Keep the last checkpoint of a finished run, to compare the states of two trainings."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "remove_checkpoint", lambda run: None)
        yield
