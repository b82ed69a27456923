"""Run a job, also with ``spark-submit``, if only the client is installed. Prints JSON to stdout.

::

    python -m tidelog.spark.pipelines archive /mnt/archive -o endpoint=log:7420 -o channels=orders,payments --trim
    spark-submit $(python -c "import tidelog.spark.pipelines.__main__ as m; print(m.__file__)") verify -o channel=orders

Exit codes: 0 ok, 1 failure, 2 usage, 9 ``verify`` has findings, 130 interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog import TidelogError
from tidelog.json_text import json_text
from tidelog.spark import JavaMissingError, require_java
from tidelog.spark.errors import OptionError
from tidelog.spark.pipelines import (
    ArchiveError,
    CompactError,
    Sequences,
    UnkeyedError,
    archive,
    compact,
    reason_of,
    stats,
    stats_page,
    verify,
    verify_page,
)
from tidelog.spark.pipelines.preflight import (
    check_archive,
    check_compact,
    check_file,
    check_stats,
    check_verify,
    reason_of_os,
)

_OK: Final = 0
_FAILURE: Final = 1
_USAGE: Final = 2
_UNHEALTHY: Final = 9
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job in the existing session, or else a new one, and return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        options = dict(_pair(text) for text in given.option)
        require_java()
        _check(given, options)
        spark = SparkSession.builder.appName(f"tidelog {given.job}").getOrCreate()
        record, page, is_ok = _run(spark, given, options)
        sys.stdout.write(json_text(record) + "\n")
        # Ordering: after the record was printed, so that it is not lost if this fails.
        if page and given.html:
            given.html.write_text(page)
    except (OptionError, argparse.ArgumentTypeError) as error:
        return _failed(str(error), _USAGE)
    except UnkeyedError:
        return _failed(str(UnkeyedError("--unkeyed keep", "--unkeyed drop")))
    except (TidelogError, ArchiveError, CompactError, JavaMissingError) as error:
        return _failed(str(error))
    except PySparkException as error:
        return _failed(reason_of(error))
    except OSError as error:
        return _failed(reason_of_os(error))
    except KeyboardInterrupt:
        return _failed("interrupted", _INTERRUPTED)
    return _OK if is_ok else _UNHEALTHY


def _failed(reason: str, code: int = _FAILURE) -> int:
    sys.stderr.write(f"tidelog: {reason}\n")
    return code


def _check(given: Any, options: dict[str, str]) -> None:
    """Raise errors that can be found before Spark starts."""
    if "html" in given and given.html:
        check_file(given.html)
    match given.job:
        case "archive":
            check_archive(given.folder, options, delta=given.delta)
        case "compact":
            check_compact(given.folder, options)
        case "verify":
            check_verify(options, digest=given.digest, content_digest=given.content_digest)
        case _:
            check_stats(options)


def _run(spark: SparkSession, given: Any, options: dict[str, str]) -> tuple[dict[str, object], str, bool]:
    """Run the job; return its record, its HTML page (empty if it has no page), and whether it found no problem."""
    match given.job:
        case "archive":
            return archive(spark, given.folder, options, trim=given.trim, delta=given.delta).as_record(), "", True
        case "compact":
            made = compact(spark, given.folder, options, tombstones=given.tombstones, unkeyed=given.unkeyed)
            return made.as_record(), "", True
        case "verify":
            sequences = Sequences(given.sequence_property, given.producer_property) if given.sequence_property else None
            report = verify(
                spark, options, digest=given.digest, content_digest=given.content_digest, sequences=sequences
            )
            return report.as_record(), verify_page(report, options), report.ok
        case _:
            counted = stats(spark, options, window_s=given.window, top=given.top)
            return counted.as_record(), stats_page(counted, options), True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tidelog.spark.pipelines", description=__doc__)
    jobs = parser.add_subparsers(dest="job", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "-o", "--option", action="append", default=[], metavar="NAME=VALUE", help="option of the source; repeatable"
    )
    page = argparse.ArgumentParser(add_help=False)
    page.add_argument("--html", type=Path, help="also write the report to this file as an HTML page")
    job = jobs.add_parser("archive", parents=[common], help="add new messages to an archive")
    job.add_argument("folder", help="folder of the archive")
    job.add_argument("--trim", action="store_true", help="trim the archived messages from the log")
    job.add_argument(
        "--delta", action="store_true", help="create a Delta table of the archive's files; needs tidelog[delta]"
    )
    job = jobs.add_parser("compact", parents=[common], help="write the latest message of each key")
    job.add_argument("folder", help="folder of snapshots")
    job.add_argument("--tombstones", choices=["drop", "keep"], default="drop")
    job.add_argument("--unkeyed", choices=["error", "keep", "drop"], default="error")
    job = jobs.add_parser("verify", parents=[common, page], help="audit the log, an archive or both")
    job.add_argument("--digest", help="expected full digest, 32 hexadecimal digits")
    job.add_argument("--content-digest", help="expected content digest, 32 hexadecimal digits")
    job.add_argument("--sequence-property", default="")
    job.add_argument("--producer-property", default="")
    job = jobs.add_parser("stats", parents=[common, page], help="count messages, bytes, sizes and keys")
    job.add_argument("--window", type=int, help="length of a window in seconds; default: about 100 windows")
    job.add_argument("--top", type=int, default=10, help="number of most frequent keys to report per channel")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there:
        raise argparse.ArgumentTypeError(f"the option {text!r} has no '=': expected NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
