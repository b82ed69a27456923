"""Commands and checks that other packages add as entry points; those of the server are in ``tidelog_server.commands``.

An entry of ``tidelog.commands`` names a module with a function ``register(app)``, one of ``tidelog.checks`` a function.
"""

from importlib.metadata import entry_points
from typing import Any, Literal

_Group = Literal["tidelog.commands", "tidelog.checks"]


def names(group: _Group) -> list[str]:
    """Return the names of the entry points of a group."""
    return [entry.name for entry in entry_points(group=group)]


def load(group: _Group, name: str) -> Any:
    """Return what the entry point ``name`` refers to.

    Raises:
        ModuleNotFoundError: The package that adds it is not installed.
    """
    for entry in entry_points(group=group, name=name):
        return entry.load()
    raise ModuleNotFoundError("tidelog_server is not installed", name="tidelog_server")
