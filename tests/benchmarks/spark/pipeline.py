"""``benchmarks pipeline``: archiving and verifying, and whether producer, log and archive have the same content."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog import AsyncClient
from tidelog_cli import event_loop
from tidelog_cli.exit_codes import CommandError
from tidelog_cli.local_spark import spark_session
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.server_process import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines import Digest, VerifyReport

_PER_BATCH: Final = 5_000
# Bytes that the producer counts per message in addition to its payload.
_OVERHEAD_BYTES: Final = 8

_Result = TypeVar("_Result")


def measure_pipeline(target: Target, folder: Path, *, messages: int, size: int, vchannels: int) -> Report:
    """Append distinct messages, archive them twice, verify log and archive, trim, and verify again.

    Raises:
        CommandError: Producer, log and archive differ, or the second run archived something.
    """
    channel = f"bench-pipeline-{os.getpid()}"
    names = [f"{channel}/{index}" for index in range(vchannels)]
    started = time.perf_counter()
    # No client may be open: Spark starts Java with a fork, during which gRPC must have no open connections.
    expected = event_loop.run(fill(target.grpc, channel, names, messages // vchannels, size))
    append_s = time.perf_counter() - started
    try:
        with spark_session(folder, name="tidelog bench") as spark:
            times = run_jobs(spark, target.grpc, channel, folder / "archive", expected)
    finally:
        event_loop.run(_remove(target.grpc, channel))
    count = messages // vchannels * vchannels
    return Report(
        name="pipeline",
        settings={"messages": count, "size": size, "vchannels": vchannels, "content_digest": str(expected)},
        messages_per_second=count / times["archive_s"],
        megabytes_per_second=count * size / times["archive_s"] / 1e6,
        server_rss_bytes=target.peak_rss_bytes(),
        details={"append_and_digest_s": append_s, **times},
    )


async def fill(endpoint: str, channel: str, vchannels: Sequence[str], each: int, size: int) -> "Digest":
    """Append ``each`` messages to each vchannel, and return the content digest as computed by the producer."""
    from tidelog.spark.pipelines import Digest, digest_contents

    digest = Digest()
    async with AsyncClient(endpoint) as client:
        await client.create_channels([channel], vchannels=len(vchannels))
        for name in vchannels:
            async with client.vchannel(name).producer(
                max_batch_bytes=_PER_BATCH * (size + _OVERHEAD_BYTES)
            ) as producer:
                for payloads in _payloads(each, size):
                    await producer.send_many(payloads)
                    digest += digest_contents(channel, payloads)
    return digest


def run_jobs(spark: "SparkSession", endpoint: str, channel: str, root: Path, expected: "Digest") -> Mapping[str, float]:
    """Run the jobs, and return the seconds of each.

    Raises:
        CommandError: See ``measure_pipeline``.
    """
    from tidelog.spark.pipelines import archive, verify

    options = {"endpoint": endpoint, "channel": channel}
    archived = {**options, "archive": str(root)}
    times: dict[str, float] = {}

    def timed(name: str, job: Callable[[], _Result]) -> _Result:
        started = time.perf_counter()
        result = job()
        times[name] = time.perf_counter() - started
        return result

    done = timed("archive_s", lambda: archive(spark, root, options))
    again = timed("archive_again_s", lambda: archive(spark, root, options))
    if again.commit or done.digests.content != expected:
        raise CommandError(
            f"the digest of the archive is {done.digests.content}, that of the producer {expected}; second run: {again}"
        )
    log = timed("verify_log_s", lambda: verify(spark, options, content_digest=str(expected)))
    alone = {**archived, "archiveOnly": "true"}
    kept = timed("verify_archive_s", lambda: verify(spark, alone, digest=str(log.digests.full)))
    timed("trim_s", lambda: archive(spark, root, options, trim=True))
    both = timed("verify_trimmed_s", lambda: verify(spark, archived, digest=str(log.digests.full)))
    _require_sound(log, kept, both)
    return times


def _payloads(count: int, size: int) -> Iterator[list[bytes]]:
    for begin in range(0, count, _PER_BATCH):
        block = os.urandom(min(_PER_BATCH, count - begin) * size)
        yield [block[at : at + size] for at in range(0, len(block), size)]


def _require_sound(*reports: "VerifyReport") -> None:
    for report in reports:
        if not report.ok:
            raise CommandError(f"verify found: {report.findings[0]}")


async def _remove(endpoint: str, channel: str) -> None:
    async with AsyncClient(endpoint) as client:
        await client.destroy_channels([channel])
