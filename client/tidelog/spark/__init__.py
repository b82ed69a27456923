"""Read Tidelog from Spark: ``spark.read.format("tidelog")``, as a consistent cut over any number of channels.

::

    from tidelog.spark import TidelogDataSource

    spark.dataSource.register(TidelogDataSource)
    orders = spark.read.format("tidelog").option("endpoint", "127.0.0.1:7420").load("orders")

Requires the extra ``tidelog[spark]`` and Java 17 or newer. ``tidelog.spark.options`` lists all options.
"""

try:
    import pyspark  # noqa: F401 - only whether it is installed
except ImportError as missing:
    raise ImportError("tidelog.spark needs pyspark: run `pip install '.[spark]'` in a clone of Tidelog") from missing

from tidelog.spark.java import JavaMissingError, require_java
from tidelog.spark.source import SCHEMA, TidelogDataSource

__all__ = ["SCHEMA", "JavaMissingError", "TidelogDataSource", "require_java"]
