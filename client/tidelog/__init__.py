"""Tidelog's client: append to durable channels, read in one time order, and resume where a read stopped.

Start with ``Client`` (synchronous) or ``AsyncClient``::

    async with tidelog.AsyncClient() as client:
        orders = await client.ensure_channel("orders")
        result = await orders.append(b"one order")
        async for batch in orders.scan(start=result.first_tick):
            print(batch.ticks, batch.payloads)
"""

import importlib as _importlib
import types as _types
import typing as _typing

if _typing.TYPE_CHECKING:
    from tidelog._public import *  # noqa: F403 - the names that it imports as themselves

    __version__: str


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _importlib.import_module("importlib.metadata").version("tidelog")
    # The first access to a public name imports all of them. Why not at import: the server uses only the wire format
    # and starts a tenth of a second sooner without the rest. Submodules are imported explicitly.
    if name == "__all__" or not name.startswith("_"):
        public = _importlib.import_module("tidelog._public")
        globals().update({each: getattr(public, each) for each in ("__all__", *public.__all__)})
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_importlib.import_module("tidelog._public").__all__})


def _export(namespace: dict[str, object], package: str) -> None:
    """Set ``__all__`` of a module to the names that it imports as themselves, ``from module import Name as Name``.

    Their classes get ``package`` as module: tracebacks, pickles and documents then show ``tidelog.Tick``, whichever
    private module defines it.
    """
    public = {
        name: value
        for name, value in sorted(namespace.items())
        if not name.startswith("_") and not isinstance(value, _types.ModuleType)
    }
    for value in public.values():
        if isinstance(value, type) and value.__module__.startswith("tidelog."):
            value.__module__ = package
    namespace["__all__"] = list(public)
