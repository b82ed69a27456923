"""Staged transactions and application commits, as stored."""

from hashlib import blake2b
from typing import Final, NamedTuple

from tidelog_server.core.callers import NO_TENANT, Tenant

CONTENT_BYTES: Final = 16
"""Length of a sum in ``TxnContent``."""
_CONTENT_MODULUS: Final = 1 << 8 * CONTENT_BYTES


class TxnRun(NamedTuple):
    """The messages of a transaction on one vchannel: consecutive ticks, after those of the previous run.

    Attributes:
        vchannel_id: Id of the vchannel.
        messages: Number of messages, at least 1.
    """

    vchannel_id: int
    messages: int


class TxnOutcome(NamedTuple):
    """The commit of a staged transaction; the answer to a retried commit.

    Attributes:
        first_tick: Tick of its first message; without messages, a tick that no message has.
        is_synced: True if the commit was synced before it was acknowledged.
        runs: Runs in tick order; empty without messages.
        tenant: Tenant of the principal that committed it.
    """

    first_tick: int
    is_synced: bool
    runs: tuple[TxnRun, ...]
    tenant: Tenant = NO_TENANT

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(run.messages for run in self.runs)

    @property
    def last_tick(self) -> int:
        """Tick of the last message; ``first_tick - 1`` without messages."""
        return self.first_tick + self.messages - 1


class TxnContent(NamedTuple):
    """Number and targets of messages, as additive 128-bit sums.

    Attributes:
        messages: Number of messages.
        by_vchannel: Sum over vchannels of the number of messages times the hash of the vchannel's id.
        by_channel: The same over channels, each with the id of its first vchannel, which no other channel ever has.
    """

    messages: int = 0
    by_vchannel: int = 0
    by_channel: int = 0

    def plus(self, other: "TxnContent") -> "TxnContent":
        """Return the combined content."""
        return TxnContent(
            self.messages + other.messages,
            (self.by_vchannel + other.by_vchannel) % _CONTENT_MODULUS,
            (self.by_channel + other.by_channel) % _CONTENT_MODULUS,
        )


def content_of(vchannel_id: int, first_vchannel_id: int, messages: int) -> TxnContent:
    """Return the content of messages on one vchannel; ``first_vchannel_id`` is the id of its channel's first one."""
    return TxnContent(
        messages,
        messages * _hash_of(vchannel_id) % _CONTENT_MODULUS,
        messages * _hash_of(first_vchannel_id) % _CONTENT_MODULUS,
    )


def _hash_of(vchannel_id: int) -> int:
    digest = blake2b(vchannel_id.to_bytes(4), digest_size=CONTENT_BYTES).digest()
    return int.from_bytes(digest)


class AppKey(NamedTuple):
    """Identifies an application.

    Attributes:
        owner: Principal that owns the application; empty with authentication off.
        app_id: Id of the application, without control characters.
    """

    owner: str
    app_id: str


class AppCommit(NamedTuple):
    """The last commit of prepared transactions by an application; the answer to its retry.

    Attributes:
        version: Version that the application assigned; later commits have greater versions.
        first_tick: Tick of its first message; without messages, a tick that no message has.
        messages: Number of messages; their ticks are consecutive.
        is_synced: True if it was synced before it was acknowledged.
        is_last: True if the application declared that it makes no other commit.
        any_vchannel: True if a retry may put messages on other vchannels of the same channels.
        content: Content that a retry must match: ``TxnContent.by_channel`` with ``any_vchannel``, else
            ``by_vchannel``; None for a commit of a server that did not record it.
        query_id: Query that numbers the versions; empty if the caller named no query.
    """

    version: int
    first_tick: int
    messages: int
    is_synced: bool
    is_last: bool = False
    any_vchannel: bool = False
    content: int | None = None
    query_id: str = ""

    @property
    def last_tick(self) -> int:
        """Tick of the last message; ``first_tick - 1`` without messages."""
        return self.first_tick + self.messages - 1


TxnPlace = tuple[int, int]
"""Vchannel id and txn id: identifies the staged batches of a transaction on one vchannel."""
