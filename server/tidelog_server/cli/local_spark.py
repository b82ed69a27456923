"""A Spark session on this machine, for what the project runs in Spark itself."""

import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog_server.cli.child_environment import child_environment
from tidelog_server.cli.exit_codes import CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow's Java checks bounds, and for NULL, at each access unless told not to: a tenth of a read. Spark itself looks at
# nothing that is not there.
_ARROW_WITHOUT_CHECKS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# Read before the session exists: what Spark says while it starts is no concern of somebody who watches. Without stacks:
# what fails a job is told by the exception that it ends with.
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
    """Raise CommandError, with what installs it, if there is no Java that Spark could run on."""
    from tidelog.spark import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        raise CommandError(str(error)) from error


@contextmanager
def spark_session(
    folder: Path, *, name: str, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Yield a Spark session that knows Tidelog, and stop it afterwards; its own files go to ``folder``.

    Without another ``master`` it is local. ``conf`` wins over what is set here.
    """
    # PySpark says so once in each session; nothing here uses pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    from tidelog.spark import TidelogDataSource

    _quiet_py4j()
    folder = folder.absolute()
    logging_settings = folder / "log4j2.properties"
    logging_settings.write_text(_ONLY_ERRORS)

    # Spark's workers must be this very Python with these very packages.
    os.environ.update(child_environment() | {"PYSPARK_PYTHON": sys.executable})
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dlog4j2.configurationFile={logging_settings.as_uri()} {_ARROW_WITHOUT_CHECKS}",
        )
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if master.startswith("local"):
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    before = _children()
    try:
        spark = builder.getOrCreate()
    except KeyboardInterrupt:
        # A Java that is still starting finds that nobody waits for it, fails, and never ends.
        for process in _children() - before:
            os.kill(process, signal.SIGTERM)
        raise
    spark.dataSource.register(TidelogDataSource)
    try:
        yield spark
    finally:
        spark.stop()


def _children() -> set[int]:
    """Return the processes that this one has started; elsewhere than on Linux they are not seen."""
    found = (task.read_text().split() for task in Path("/proc/self/task").glob("*/children"))
    return {int(process) for processes in found for process in processes}


def _quiet_py4j() -> None:
    """Keep py4j from printing a stack for each call that Ctrl-C interrupts; the exception itself comes through."""
    py4j = logging.getLogger("py4j")
    py4j.addHandler(logging.NullHandler())
    py4j.propagate = False
    # It also uses the functions of logging, and so the logger of everybody.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
