"""The package search path of child processes."""

import os
import sys


def python_path() -> str:
    """Return the PYTHONPATH with which a child process finds the packages of this process."""
    return os.pathsep.join(filter(None, sys.path))
