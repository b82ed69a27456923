"""The settings and the report of ``benchmarks gazette``, of publishing and of reading alike."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from benchmarks.gazette.messages import CodecName, Spent
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import Target

# Many short rounds, so that variations of the machine's speed affect all measurements alike.
ROUNDS: Final = 9


@dataclass(frozen=True, slots=True)
class GazetteSettings:
    """Settings of the benchmark.

    Attributes:
        messages: Messages of each measurement, over all rounds.
        size: Bytes of each line, with its newline and its UUID.
        per_transaction: Uncommitted messages between two acknowledgements.
        codec: The package that encodes and decodes.
    """

    messages: int
    size: int
    per_transaction: int
    codec: CodecName

    @property
    def per_round(self) -> int:
        """Messages of each measurement in one round."""
        return max(1, self.messages // ROUNDS)

    def described(self) -> dict[str, object]:
        """Return the settings for a report."""
        return {
            "messages": self.per_round * ROUNDS, "size": self.size, "per_transaction": self.per_transaction,
            "codec": self.codec,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Times of the rounds, of publishing or of reading.

    Attributes:
        codec: The encoder or the decoder alone, which is the floor.
        framing: The codec with what makes a value of a message, or a message of a value, as the client uses it.
        committed: Messages outside of transactions.
        transactions: Messages of transactions, with their acknowledgements.
    """

    codec: list[Spent] = field(default_factory=list)
    framing: list[Spent] = field(default_factory=list)
    committed: list[Spent] = field(default_factory=list)
    transactions: list[Spent] = field(default_factory=list)


def gazette_report(
    name: Literal["publish", "read"], target: Target, settings: GazetteSettings, times: RoundTimes
) -> Report:
    """Return the medians over the rounds, and the ratios of the rounds to the codec alone."""
    count = settings.per_round
    rate = count / _median_seconds(times.committed)
    codec = "encoder" if name == "publish" else "decoder"
    return Report(
        name=f"gazette {name}",
        settings=settings.described(),
        messages_per_second=rate,
        megabytes_per_second=rate * settings.size / 1e6,
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor(
            f"the {codec} of {settings.codec} alone", "messages_per_second", count / _median_seconds(times.codec)
        ),
        ratio=_ratio(times.codec, times.committed),
        details={
            "cpu_ratio": _cpu_ratio(times.codec, times.committed),
            "cpu_ratio_of_framing": _cpu_ratio(times.codec, times.framing),
            "transactions_messages_per_second": count / _median_seconds(times.transactions),
            "transactions_ratio": _ratio(times.codec, times.transactions),
            "transactions_cpu_ratio": _cpu_ratio(times.codec, times.transactions),
        },
    )


def _median_seconds(rounds: Sequence[Spent]) -> float:
    return statistics.median(each.seconds for each in rounds)


def _ratio(floor: Sequence[Spent], ours: Sequence[Spent]) -> float:
    """Return the median ratio of the rounds' rates."""
    return statistics.median(alone.seconds / full.seconds for alone, full in zip(floor, ours, strict=True))


def _cpu_ratio(floor: Sequence[Spent], ours: Sequence[Spent]) -> float:
    """Return the median ratio of the rounds' messages per second of CPU time of this process."""
    return statistics.median(alone.cpu_seconds / full.cpu_seconds for alone, full in zip(floor, ours, strict=True))
