"""Selection of the Python that runs the source in Spark's workers."""

import os
import sys
from typing import Any, Final

_VARIABLE: Final = "PYSPARK_PYTHON"


def use_python_of_the_driver() -> None:
    """In local mode, make the active session start its workers with the Python of this process.

    Spark starts workers with ``python3`` from PATH unless ``PYSPARK_PYTHON`` is set. If the driver runs in a virtual
    environment that is not activated, that is another Python, without this package. Workers on other machines are not
    changed, because their environment is unknown here.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    # The workers of a Spark Connect session run on another machine.
    if is_remote() or _VARIABLE in os.environ or (session := SparkSession.getActiveSession()) is None:
        return
    context: Any = session.sparkContext
    if str(context.master).startswith("local"):
        context.pythonExec = sys.executable
