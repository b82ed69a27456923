"""The environment of the processes that the command line starts."""

import os
import sys


def python_path() -> str:
    """Return the PYTHONPATH with which a child process finds the packages of this process."""
    return os.pathsep.join(filter(None, sys.path))


def child_environment() -> dict[str, str]:
    """Return our environment and package search path, without ``TIDELOG_*``, which may configure another server."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    return environment | {"PYTHONPATH": python_path()}
