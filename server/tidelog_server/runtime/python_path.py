"""Where Python looks for packages, for the processes that we start."""

import os
import sys


def python_path() -> str:
    """Return a PYTHONPATH with which a child finds the packages of this process, however this process found them."""
    return os.pathsep.join(filter(None, sys.path))
