"""Commands and checks that other packages add as entry points; those of the server are in ``tidelog_server.commands``.

An entry of ``tidelog.commands`` names a module with a function ``register(app)``, one of ``tidelog.checks`` a function.
"""

from importlib.metadata import entry_points
from typing import Any, Literal


def load(group: Literal["tidelog.commands", "tidelog.checks"], name: str) -> Any:
    """Return what the entry point ``name`` refers to.

    Raises:
        ModuleNotFoundError: The package that adds it is not installed.
    """
    for entry in entry_points(group=group, name=name):
        return entry.load()
    raise ModuleNotFoundError("tidelog_server is not installed", name="tidelog_server")
