"""Maintenance jobs of a log on Spark: archive, compact, verify, stats. docs/guides/spark/pipelines.md describes them.

::

    from tidelog.spark.pipelines import archive, verify

    archive(spark, "/mnt/archive", {"endpoint": "127.0.0.1:7420", "channels": "orders,payments"})

Each is an idempotent function of a session and options of the source. Each is also a command, ``tidelog pipeline
archive``; ``tidelog.spark.submit`` is a program for ``spark-submit``.
"""

from tidelog.spark.archive.manifest import Archive
from tidelog.spark.archive.manifest import load as load_archive
from tidelog.spark.errors import ArchiveError
from tidelog.spark.pipelines.archiving import ArchiveResult, ArchiveTotals, archive
from tidelog.spark.pipelines.checks import Sequences
from tidelog.spark.pipelines.compaction import CompactError, CompactResult, UnkeyedError, compact, latest
from tidelog.spark.pipelines.cross_checks import Finding
from tidelog.spark.pipelines.digest import Digest, Digests, digest_batch, digest_contents, digest_frame
from tidelog.spark.pipelines.html import stats_page, verify_page
from tidelog.spark.pipelines.reports import VchannelReport, VerifyReport
from tidelog.spark.pipelines.statistics import StatsReport, stats
from tidelog.spark.pipelines.table import read_table
from tidelog.spark.pipelines.tasks import reason_of
from tidelog.spark.pipelines.trim import Trimmed
from tidelog.spark.pipelines.verification import verify, verify_frame

__all__ = [
    "Archive",
    "ArchiveError",
    "ArchiveResult",
    "ArchiveTotals",
    "CompactError",
    "CompactResult",
    "Digest",
    "Digests",
    "Finding",
    "Sequences",
    "StatsReport",
    "Trimmed",
    "UnkeyedError",
    "VchannelReport",
    "VerifyReport",
    "archive",
    "compact",
    "digest_batch",
    "digest_contents",
    "digest_frame",
    "latest",
    "load_archive",
    "read_table",
    "reason_of",
    "stats",
    "stats_page",
    "verify",
    "verify_frame",
    "verify_page",
]
