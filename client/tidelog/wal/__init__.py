"""The log as a WAL accessor: ``client.wal()``. docs/guides/wal.md describes it.

The names are those of ``tidelog``, which also exports them.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from tidelog.sync.generated.wal import WalBroadcast, WalTransaction
    from tidelog.sync.wal import Wal, WalScanner
    from tidelog.wal.accessor import AsyncWal, AsyncWalBroadcast, AsyncWalTransaction
    from tidelog.wal.deliver_filters import DeliverFilter
    from tidelog.wal.message_handler import MessageHandler
    from tidelog.wal.responses import AppendResponse, AppendResponses, To
    from tidelog.wal.scanner import AsyncWalScanner

__all__ = [
    "AppendResponse",
    "AppendResponses",
    "AsyncWal",
    "AsyncWalBroadcast",
    "AsyncWalScanner",
    "AsyncWalTransaction",
    "DeliverFilter",
    "MessageHandler",
    "To",
    "Wal",
    "WalBroadcast",
    "WalScanner",
    "WalTransaction",
]


def __getattr__(name: str) -> object:
    # At the first access, not at import: the synchronous twins are above this package, which the client imports.
    if name in __all__:
        return getattr(_importlib.import_module("tidelog"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
