"""Training runs of the commands draw no pictures and do not call fsync, either."""

from tests.tasks.conftest import _no_pictures, _no_waiting_for_the_disk, pictures

__all__ = ["_no_pictures", "_no_waiting_for_the_disk", "pictures"]
