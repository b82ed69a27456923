"""The checks of ``verify`` that need the rows of all tasks: transactions, broadcasts, sequences.

The provable properties of a transaction: the messages of a request have consecutive ticks, across all its vchannels. A
request may have several transactions, each with messages on all of its vchannels; their ranges of ticks overlap. So
overlapping transactions belong to one request: they must be on the same vchannels, and their ticks must have no gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_MAX: Final = 100
_MAX_WRONG: Final = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation.

    Attributes:
        kind: ``repeated``, ``order``, ``overlap``, ``unreadable``, ``count``, ``digest``, ``archive``,
            ``transaction_gap``, ``transaction_lanes``, ``transaction_mixed``, ``broadcast_ticks``,
            ``broadcast_repeated``, ``broadcast_missing``, ``sequence_gap``, ``sequence_repeated``,
            ``sequence_malformed``.
        name: The vchannel, transaction, broadcast or producer.
        tick: Tick of the violation; 0 if it has no position.
        text: Description.
    """

    kind: str
    name: str
    tick: int
    text: str


@dataclass(frozen=True, slots=True)
class OpenBroadcast:
    """A broadcast that not all of its vchannels have acknowledged, so that the server still has the list of them.

    Attributes:
        broadcast_id, tick: Id and tick of the broadcast.
        vchannels: Vchannels that are read and must have the broadcast.
    """

    broadcast_id: int
    tick: int
    vchannels: frozenset[str]


def check_transactions(parts: DataFrame, *, is_whole: bool, floor: int) -> tuple[int, list[Finding], list[str]]:
    """Return the number of transactions, the findings, and the undecided checks.

    Args:
        parts: See ``tidelog.spark.pipelines.checks``.
        is_whole: True if all vchannels of each transaction were read.
        floor: Smallest tick from which nothing was trimmed.
    """
    each = (
        parts.where("kind = 'txn'")
        .groupBy("id")
        .agg(
            F.min("a").alias("first"),
            F.max("b").alias("last"),
            F.sum("n").alias("n"),
            F.sort_array(F.collect_set("name")).alias("vchannels"),
        )
    )
    count = each.count()
    # All other transactions have every tick between their first and their last.
    spread = each.where("n < last - first + 1")
    before = Window.orderBy("first", "id").rowsBetween(Window.unboundedPreceding, -1)
    until = Window.orderBy("first", "id").rowsBetween(Window.unboundedPreceding, 0)
    is_new = F.coalesce(F.col("first") > F.max("last").over(before), F.lit(True)).cast("int")
    requests = (
        spread.withColumn("is_new", is_new)
        .withColumn("request", F.sum("is_new").over(until))
        .groupBy("request")
        .agg(
            F.min("id").alias("id"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.sum("n").alias("n"),
            F.count_distinct("vchannels").alias("shapes"),
        )
    )
    wrong = requests.where("n < last - first + 1 OR shapes > 1").orderBy("first").limit(_MAX_WRONG).collect()
    findings, gaps, trimmed = [], 0, 0
    for row in wrong:
        if row.first < floor:
            trimmed += 1
        elif row.shapes > 1:
            text = f"transactions of one request, ticks {row.first} to {row.last}, are not on the same vchannels"
            findings.append(Finding("transaction_lanes", f"transaction {row.id}", row.first, text))
        elif is_whole:
            missing = row.last - row.first + 1 - row.n
            text = f"{row.n} messages have the ticks {row.first} to {row.last}: {missing} are missing"
            findings.append(Finding("transaction_gap", f"transaction {row.id}", row.first, text))
        else:
            gaps += 1
    notes = {"that were trimmed in part": trimmed, "of which some ticks may be on channels that were not read": gaps}
    return (
        count,
        findings[:_MAX],
        [f"{number} requests with transactions {why}" for why, number in notes.items() if number],
    )


def check_broadcasts(parts: DataFrame) -> tuple[int, list[Finding]]:
    """Return the number of broadcasts, and findings: each must have one tick, and occur once on each vchannel."""
    each = (
        parts.where("kind = 'broadcast'")
        .groupBy("id")
        .agg(
            F.min("a").alias("first"),
            F.max("a").alias("last"),
            F.sum("n").alias("n"),
            F.count_distinct("name").alias("vchannels"),
        )
    )
    findings = []
    wrong = each.where("first < last OR n > vchannels").limit(_MAX).collect()
    for row in (row for row in wrong if row.first < row.last):
        text = f"its messages have the ticks {row.first} and {row.last}, expected the same tick"
        findings.append(Finding("broadcast_ticks", f"broadcast {row.id}", row.first, text))
    for row in (row for row in wrong if row.n > row.vchannels):
        text = f"it has {row.n} messages on {row.vchannels} vchannels, expected one on each"
        findings.append(Finding("broadcast_repeated", f"broadcast {row.id}", row.first, text))
    return each.count(), findings


def check_open_broadcasts(parts: DataFrame, broadcasts: Sequence[OpenBroadcast]) -> list[Finding]:
    """Return a finding for each broadcast that is missing on one of its vchannels."""
    if not broadcasts:
        return []
    rows = parts.where("kind = 'broadcast'").select("id", "name").distinct().collect()
    seen: dict[int, set[str]] = {}
    for row in rows:
        seen.setdefault(row.id, set()).add(row["name"])
    return [
        Finding(
            "broadcast_missing", f"broadcast {each.broadcast_id}", each.tick, f"it is missing on {', '.join(missing)}"
        )
        for each in broadcasts
        if (missing := sorted(each.vchannels - seen.get(each.broadcast_id, set())))
    ]


def check_sequences(parts: DataFrame) -> tuple[int, list[Finding]]:
    """Return the number of producers, and a finding where a sequence is not the previous one plus one."""
    runs = parts.where("kind = 'sequence'")
    behind = F.lag(F.col("id") + F.col("n")).over(Window.partitionBy("name").orderBy("a", "id"))
    wrong = runs.withColumn("expected", behind).where("id <> expected")
    findings = []
    for row in wrong.orderBy("a").limit(_MAX).collect():
        is_gap = row.id > row.expected
        text = f"the sequence is {row.id}, expected {row.expected}: " + (
            f"{row.id - row.expected} are missing" if is_gap else "it is repeated or out of order"
        )
        findings.append(
            Finding("sequence_gap" if is_gap else "sequence_repeated", f"producer {row['name']}", row.a, text)
        )
    return runs.select("name").distinct().count(), findings
