"""A Spark session for the project's own jobs."""

import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By default Arrow's Java code checks bounds and NULL at each access, which costs a tenth of a read. Spark does not
# access values out of bounds.
_ARROW_WITHOUT_CHECKS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# Loaded before the session starts, to hide Spark's start-up messages. Without stack traces: the exception that ends a
# failed job reports the cause.
_ONLY_ERRORS: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex{0}
"""


def check_java() -> None:
    """Raise CommandError, with the command that installs it, if Spark finds no suitable Java."""
    from tidelog.spark import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        raise CommandError(str(error)) from error


@contextmanager
def spark_session(
    folder: Path, *, name: str, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Yield a Spark session with the Tidelog data source, and stop it afterwards.

    Args:
        folder: For Spark's local files.
        name: Name of the application.
        master: Spark master. Default: local.
        conf: Spark settings; they override the settings of this function.
    """
    # PySpark prints this warning once per session; this code does not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    from tidelog.spark import TidelogDataSource

    _quiet_py4j()
    folder = folder.absolute()
    logging_settings = folder / "log4j2.properties"
    logging_settings.write_text(_ONLY_ERRORS)

    # Spark's workers must run the same Python with the same packages.
    os.environ.update(child_environment() | {"PYSPARK_PYTHON": sys.executable})
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={logging_settings.as_uri()} {_ARROW_WITHOUT_CHECKS}"
        ),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master(master).appName(name).config(map={**settings, **(conf or {})})
    before = _children()
    try:
        spark = builder.getOrCreate()
    except KeyboardInterrupt:
        # A JVM that is still starting fails when its parent stops waiting, but never exits.
        for process in _children() - before:
            os.kill(process, signal.SIGTERM)
        raise
    spark.dataSource.register(TidelogDataSource)
    try:
        yield spark
    finally:
        spark.stop()


def _children() -> set[int]:
    """Return the ids of the child processes of this process; empty on systems other than Linux."""
    found = (task.read_text().split() for task in Path("/proc/self/task").glob("*/children"))
    return {int(process) for processes in found for process in processes}


def _quiet_py4j() -> None:
    """Silence py4j's stack trace of each call that Ctrl-C interrupts; the exception itself still propagates."""
    py4j = logging.getLogger("py4j")
    py4j.addHandler(logging.NullHandler())
    py4j.propagate = False
    # It also calls the functions of the logging module, which use the root logger.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
