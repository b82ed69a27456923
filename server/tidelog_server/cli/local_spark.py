"""A Spark session on this machine, for what the project runs in Spark itself."""

import os
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
    spark = builder.getOrCreate()
    spark.dataSource.register(TidelogDataSource)
    try:
        yield spark
    finally:
        spark.stop()
