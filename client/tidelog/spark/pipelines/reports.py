"""What ``verify`` tells: a report, with one of each vchannel in it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tidelog.spark.pipelines.digest import Digests
from tidelog.spark.pipelines.together import Finding


@dataclass(frozen=True, slots=True)
class LaneReport:
    """What was read of one vchannel.

    Attributes:
        vchannel: ``<channel>/<index>``.
        messages, bytes: How many; bytes are those of keys and payloads.
        first_tick, last_tick: Of its messages.
        digest, content_digest: Of its messages.
        described: How many the server says there are; None if that cannot be compared.
    """

    vchannel: str
    messages: int
    bytes: int
    first_tick: int
    last_tick: int
    digest: str
    content_digest: str
    described: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What an audit found.

    Attributes:
        findings: Each is something that must not be; at most some hundreds of a kind.
        undecided: What could not be proven either way, and why.
        lanes: In order of name.
        transactions, broadcasts, producers: How many were seen.
        digests: Of all messages.
        seconds: How long it took.
    """

    findings: Sequence[Finding]
    undecided: Sequence[str]
    lanes: Sequence[LaneReport]
    transactions: int
    broadcasts: int
    producers: int
    digests: Digests
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def messages(self) -> int:
        """How many were read."""
        return sum(lane.messages for lane in self.lanes)

    def as_record(self) -> dict[str, object]:
        """Return it as values that JSON has."""
        return {
            "ok": self.ok,
            "messages": self.messages,
            "bytes": sum(lane.bytes for lane in self.lanes),
            "digest": str(self.digests.full),
            "content_digest": str(self.digests.content),
            "transactions": self.transactions,
            "broadcasts": self.broadcasts,
            "producers": self.producers,
            "findings": [asdict(finding) for finding in self.findings],
            "undecided": list(self.undecided),
            "lanes": [asdict(lane) for lane in self.lanes],
            "seconds": round(self.seconds, 3),
        }
