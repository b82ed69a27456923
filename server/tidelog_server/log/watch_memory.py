"""The memory of all watches of a node: the names that each has sent, by tenant (D-168)."""

from collections.abc import Callable
from typing import Final

from tidelog_server.core.callers import Tenant
from tidelog_server.core.limits import MIB, Limits
from tidelog_server.core.usage import Usage

# What all watches of a node remember to have sent. A dict takes at most 45 bytes for an item that it shares.
WATCHED_NAME_BYTES: Final = 64
MAX_WATCH_MEMORY_BYTES: Final = 256 * MIB

_MAX_NAMES = MAX_WATCH_MEMORY_BYTES // WATCHED_NAME_BYTES


class WatchMemory:
    """Counts names that watches remember. Lives on the event loop."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._names = Usage()

    @property
    def used_bytes(self) -> int:
        """Memory of all watches."""
        return self._names.total * WATCHED_NAME_BYTES

    def take(self, tenant: Tenant, names: int) -> None:
        """Count ``names`` more of a watch of ``tenant``.

        Raises:
            RateLimitRejectedError: The watches of the node, or of the tenant, remember too many.
        """
        self._names.check(
            tenant, names, _MAX_NAMES, self._limits().max_principal_percent,
            unit="names that its watches have sent", limit="watched_names", name="names",
            full="the watches of this node would remember {total} names that they have sent, at most {maximum} are "
            "allowed: close unused watches, or watch fewer names",
        )  # fmt: skip
        self._names.add(tenant, names)

    def release(self, tenant: Tenant, names: int) -> None:
        """Count ``names`` less of the watches of ``tenant``."""
        self._names.add(tenant, -names)
