"""Trainings of these tests draw no pictures, as without matplotlib, and do not wait for the disk.

Drawing and waiting take longer than the trainings do; waiting only matters after a power failure.
"""

import importlib.util
import os
from collections.abc import Iterator

import pytest

from glassgate.tasks.pictures import charts


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
    """The tests of a module that ask for this, and those after them, draw pictures all the same."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(charts, "find_spec", importlib.util.find_spec)
        yield
