"""The environment of the processes that the command line starts."""

import os

from tidelog_server.runtime.python_path import python_path


def child_environment() -> dict[str, str]:
    """Return the environment for a child process: ours without ``TIDELOG_*``, which may configure another server."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    return environment | {"PYTHONPATH": python_path()}
