"""What a fork does to open connections, found out before gRPC crashes on it.

gRPC's asyncio interface runs a thread as long as one of its objects lives, and a child that was forked meanwhile dies
with a segmentation fault at its first call (grpcio 1.85). So whoever can pause does so before a fork, and opens anew
after it, in the parent as in the child; and where something had to stay open, the child gets a ForkError instead.

gRPC has fork handlers of its own, which serve its synchronous interface only, and crash about one child in four when
the asynchronous one is in use, whatever the child does. They are left out, unless grpc was imported before or the
environment asks for them.
"""

import gc
import importlib
import os
from collections.abc import Callable
from weakref import WeakSet

from tidelog._errors import ForkError

_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"


def _import_grpc_without_fork_handlers() -> None:
    """Import gRPC, which looks at the variable then and never again; other programs shall not inherit it."""
    was_set = _FORK_SUPPORT in os.environ
    os.environ.setdefault(_FORK_SUPPORT, "0")
    importlib.import_module("grpc")
    if not was_set:
        del os.environ[_FORK_SUPPORT]


_import_grpc_without_fork_handlers()


class _Forks:
    """What this process has open, and whether it was forked while something was.

    Attributes:
        connected: Everything that holds gRPC objects now.
        is_poisoned: Whether gRPC cannot work in this process.
    """

    def __init__(self) -> None:
        self.connected: WeakSet[object] = WeakSet()
        self.is_poisoned = False
        self._unusable: list[object] = []

    def after_in_child(self) -> None:
        """Remember whether gRPC was in use, and then keep what it left: freeing it may crash as using it does."""
        if self.connected:
            self.is_poisoned = True
            self._unusable.extend(self.connected)
            gc.freeze()
        self.connected = WeakSet()


_forks = _Forks()


def connected(holder: object) -> None:
    """Note that ``holder`` has gRPC objects from now on.

    Raises:
        ForkError: gRPC cannot work in this process, because it was forked while its parent had connections open.
    """
    if _forks.is_poisoned:
        raise ForkError(
            "this process was forked while a Tidelog client had streams open, or an AsyncClient was open at all: close "
            "them before the fork, or start processes with multiprocessing's 'spawn' or 'forkserver'"
        )
    _forks.connected.add(holder)


def disconnected(holder: object) -> None:
    """Note that ``holder`` has no gRPC objects any more."""
    _forks.connected.discard(holder)


def pause_around_forks(*, before: Callable[[], None], after_in_child: Callable[[], None]) -> None:
    """Run ``before`` ahead of every fork, and ``after_in_child`` in each child, as long as the process lives."""
    os.register_at_fork(before=before, after_in_child=after_in_child)


os.register_at_fork(after_in_child=_forks.after_in_child)
