"""What Lightning has to know of the processes: that they are there, and how their gradients become one."""

from lightning.pytorch.plugins.environments import ClusterEnvironment
from lightning.pytorch.strategies import DDPStrategy

from glassgate.tasks.training.processes.world import World


class Started(ClusterEnvironment):
    """Processes that are there already, whoever has started them; also a single one.

    Args:
        world: which they are
    """

    def __init__(self, world: World):
        self.world = world

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return self.world.address

    @property
    def main_port(self) -> int:
        return self.world.port

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self.world.size

    def set_world_size(self, size: int) -> None:
        assert size == self.world.size

    def global_rank(self) -> int:
        return self.world.rank

    def set_global_rank(self, rank: int) -> None:
        assert rank == self.world.rank

    def local_rank(self) -> int:
        return self.world.local_rank

    def node_rank(self) -> int:
        return self.world.node


class Shared(DDPStrategy):
    """Averages gradients; weights are equal from the start, and buffers, such as states of streams, each one's own."""

    def __init__(self) -> None:
        super().__init__(broadcast_buffers=False, init_sync=False, find_unused_parameters=False)

    def _configure_launcher(self) -> None:
        """Start nothing, and leave the number of threads as it is."""
