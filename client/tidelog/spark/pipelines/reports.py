"""The reports of ``verify``."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidelog.spark.pipelines.cross_checks import Finding
from tidelog.spark.pipelines.digest import Digests


@dataclass(frozen=True, slots=True)
class VchannelReport:
    """Totals of one vchannel.

    Attributes:
        vchannel: ``<channel>/<index>``.
        messages, bytes: Number of messages, and bytes of keys and payloads.
        first_tick, last_tick: Ticks of the first and last message.
        digest, content_digest: Digests of the messages.
        described: Number of messages that the server reports; None if it cannot be compared.
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
    """The result of an audit.

    Attributes:
        findings: Violations; at most a few hundred per kind.
        undecided: Checks that were not possible, with the reason.
        vchannels: Totals of each vchannel, sorted by name.
        transactions, broadcasts, producers: Number of each.
        digests: Digests of all messages.
        seconds: Duration of the audit.
    """

    findings: Sequence[Finding]
    undecided: Sequence[str]
    vchannels: Sequence[VchannelReport]
    transactions: int
    broadcasts: int
    producers: int
    digests: Digests
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if there are no findings."""
        return not self.findings

    @property
    def messages(self) -> int:
        """Number of messages read."""
        return sum(each.messages for each in self.vchannels)

    def as_record(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "ok": self.ok,
            "messages": self.messages,
            "bytes": sum(each.bytes for each in self.vchannels),
            "digest": str(self.digests.full),
            "content_digest": str(self.digests.content),
            "transactions": self.transactions,
            "broadcasts": self.broadcasts,
            "producers": self.producers,
            "findings": [asdict(finding) for finding in self.findings],
            "undecided": list(self.undecided),
            "lanes": [asdict(each) for each in self.vchannels],
            "seconds": round(self.seconds, 3),
        }
