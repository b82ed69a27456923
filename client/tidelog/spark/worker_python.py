"""Which Python runs the source in Spark's workers."""

import os
import sys
from typing import Any, Final

_VARIABLE: Final = "PYSPARK_PYTHON"


def use_python_of_the_driver() -> None:
    """In local mode, have the session that runs start its workers with the Python of this process.

    Spark starts them with ``python3`` of the path unless ``PYSPARK_PYTHON`` is set. Where a program runs under the
    Python of a virtual environment that is not activated, that is another one, which does not have this package.
    Workers on other machines are not changed: what they have is not known here.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    # A session of Spark Connect has its workers elsewhere.
    if is_remote() or _VARIABLE in os.environ or (session := SparkSession.getActiveSession()) is None:
        return
    context: Any = session.sparkContext
    if str(context.master).startswith("local"):
        context.pythonExec = sys.executable
