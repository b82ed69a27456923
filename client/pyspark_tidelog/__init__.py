"""Registers ``format("tidelog")`` with Spark without ``spark.dataSource.register``.

Spark imports each package whose name begins with ``pyspark_`` in its first worker and registers its ``DefaultSource``.
"""

try:
    from tidelog.spark import TidelogDataSource as DefaultSource
except ModuleNotFoundError as error:
    # Spark imports this package for every query that uses a Python source, and an error here would fail the query.
    # Without the extra `spark` there is no source to register.
    if (error.name or "").partition(".")[0] not in ("numpy", "pyarrow", "pyspark"):
        raise
    __all__ = []
else:
    __all__ = ["DefaultSource"]
