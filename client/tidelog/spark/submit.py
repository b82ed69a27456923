r"""A program for ``spark-submit``: runs a job of ``tidelog.spark.pipelines``, and prints its result as JSON.

::

    spark-submit "$(python -c 'import tidelog.spark.submit as m; print(m.__file__)')" \
        archive '{"root": "/mnt/archive", "options": {"endpoint": "log:7420", "channel": "orders"}, "trim": true}'

The arguments of the function of the name are a JSON object. Exits with 9 if ``verify`` has findings.

Why not in ``pipelines``: Python searches the folder of a program first, and ``html`` there hides the standard one.
"""

import json
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from tidelog.json_text import json_text
from tidelog.spark.pipelines import Sequences, archive, compact, stats, verify

_JOBS: Final[dict[str, Any]] = {job.__name__: job for job in (archive, compact, verify, stats)}
_UNHEALTHY: Final = 9


def main(name: str, arguments: str) -> int:
    """Run a job in the session of ``spark-submit``, or else a new one, and return the exit code."""
    given = json.loads(arguments)
    if "sequences" in given:
        given["sequences"] = Sequences(**given["sequences"])
    result = _JOBS[name](SparkSession.builder.appName(f"tidelog {name}").getOrCreate(), **given)
    sys.stdout.write(json_text(result.as_record()) + "\n")
    return 0 if getattr(result, "ok", True) else _UNHEALTHY


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
