"""Begun transactions, as far as the store knows them."""

from hashlib import blake2b
from typing import Final, NamedTuple

from tidelog_server.core.tenants import NO_TENANT, Tenant

CONTENT_BYTES: Final = 16
"""Of a number of ``TxnContent``."""
_CONTENT_MODULUS: Final = 1 << 8 * CONTENT_BYTES


class TxnRun(NamedTuple):
    """The messages of a transaction on one vchannel: consecutive ticks, behind those of the run before.

    Attributes:
        vchannel_id: The vchannel.
        messages: How many, at least 1.
    """

    vchannel_id: int
    messages: int


class TxnOutcome(NamedTuple):
    """Where a begun transaction was committed; what a repeated commit is answered with.

    Attributes:
        first_tick: Tick of its first message; of one that had none, a tick that no message has.
        is_synced: Whether the commit was synced before it was acknowledged.
        runs: In order of ticks; empty if it had no messages.
        tenant: The tenant of the principal that committed it.
    """

    first_tick: int
    is_synced: bool
    runs: tuple[TxnRun, ...]
    tenant: Tenant = NO_TENANT

    @property
    def messages(self) -> int:
        """How many there are."""
        return sum(run.messages for run in self.runs)

    @property
    def last_tick(self) -> int:
        """Tick of the last message; one less than ``first_tick`` if there was none."""
        return self.first_tick + self.messages - 1


class TxnContent(NamedTuple):
    """Where messages go, and how many there are, in numbers of 128 bits that add up.

    Attributes:
        messages: How many.
        by_vchannel: The sum over vchannels of the number of messages times the hash of the vchannel's id.
        by_channel: The same over channels, each under the id of its first vchannel, which no other channel ever has.
    """

    messages: int = 0
    by_vchannel: int = 0
    by_channel: int = 0

    def plus(self, other: "TxnContent") -> "TxnContent":
        """Return the content of both."""
        return TxnContent(
            self.messages + other.messages,
            (self.by_vchannel + other.by_vchannel) % _CONTENT_MODULUS,
            (self.by_channel + other.by_channel) % _CONTENT_MODULUS,
        )


def content_of(vchannel_id: int, first_vchannel_id: int, messages: int) -> TxnContent:
    """Return the content of messages on one vchannel; ``first_vchannel_id`` is the first one of its channel."""
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
        owner: The principal whose application it is; empty with authentication off.
        app_id: Its id, without control characters.
    """

    owner: str
    app_id: str


class AppCommit(NamedTuple):
    """The last commit of prepared transactions that an application has made; what repeating it is answered with.

    Attributes:
        version: The application's number of it; later ones are greater.
        first_tick: Tick of its first message; of one that had none, a tick that no message has.
        messages: How many; they have consecutive ticks.
        is_synced: Whether it was synced before it was acknowledged.
        is_last: Whether the application has said that it makes no other commit.
        any_vchannel: Whether a repetition may put messages on other vchannels of the same channels.
        content: What the messages of a repetition must come to: ``TxnContent.by_channel`` where it may, else
            ``by_vchannel``; None for a commit of a server that did not record it.
        query_id: The query whose versions they are; empty where the caller named no query.
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
        """Tick of the last message; one less than ``first_tick`` if there was none."""
        return self.first_tick + self.messages - 1


TxnPlace = tuple[int, int]
"""Vchannel id and txn id: what a transaction has staged on one vchannel."""
