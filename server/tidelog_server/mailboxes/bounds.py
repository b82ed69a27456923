"""Bounds on what all mailboxes of a node hold, shared fairly by tenants (D-102)."""

from collections.abc import Callable
from typing import Final

from tidelog_server.core.callers import Tenant
from tidelog_server.core.limits import ENDED_LOCK_MEMORY_BYTES, MAX_ENDED_LOCKS, Limits
from tidelog_server.core.usage import Usage

# Fetches that wait on a node; about 2 kB each.
MAX_WAITING_FETCHES: Final = 10_000
# A node with many mailboxes remembers fewer ended locks in each, so that they take about 1/ENDED_LOCKS_PART of the
# memory of mailboxes, but at least MIN_ENDED_LOCKS.
MIN_ENDED_LOCKS: Final = 64
ENDED_LOCKS_PART: Final = 16


class Bounds:
    """What all open mailboxes hold, and fetches that wait. Lives on the event loop.

    Attributes:
        messages: Messages, by the tenant that created their mailbox.
        memory: Bytes of memory that they, their keys, groups, leases, ended locks and references to blobs take, by the
            same tenant, and those that blobs take, by the tenant that pays. What a start loads counts even beyond the
            bound; nothing further is accepted then.
        mailboxes: Returns the number of mailboxes that are open, or will be.
        waiting: Waiting fetches, by the tenant of the caller.
    """

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self.messages = Usage()
        self.memory = Usage()
        self.waiting = Usage()
        self.mailboxes: Callable[[], int] = lambda: 0

    @property
    def ended_locks(self) -> int:
        """Number of ended locks that each mailbox remembers."""
        memory_bytes = self._limits().max_mailbox_memory_bytes // ENDED_LOCKS_PART
        number = memory_bytes // (ENDED_LOCK_MEMORY_BYTES * max(1, self.mailboxes()))
        return max(MIN_ENDED_LOCKS, min(number, MAX_ENDED_LOCKS))

    def check_messages(self, tenant: Tenant, amount: int) -> None:
        """Check that a mailbox of ``tenant`` may hold ``amount`` more messages. Raises RateLimitRejectedError."""
        limits = self._limits()
        self.messages.check(
            tenant, amount, limits.max_mailbox_messages, limits.max_principal_percent,
            unit="messages in the mailboxes that it created", limit="mailbox_messages", name="messages",
            full="the mailboxes of this node would hold {total} messages, at most {maximum} are allowed: wait until "
            "workers have confirmed some, or raise limits.max_mailbox_messages",
        )  # fmt: skip

    def check_memory(self, tenant: Tenant, size_bytes: int) -> None:
        """Check that mailboxes and blobs of ``tenant`` may take ``size_bytes`` more of memory.

        Raises:
            RateLimitRejectedError: They may not.
        """
        limits = self._limits()
        self.memory.check(
            tenant, size_bytes, limits.max_mailbox_memory_bytes, limits.max_principal_percent,
            unit="bytes of memory for messages, keys and groups of the mailboxes that it created, and for its blobs",
            limit="mailbox_memory", name="memory_bytes",
            full="the mailboxes of this node would take {total} bytes of memory, at most {maximum} are allowed: "
            "wait until workers have confirmed messages, deduplication windows have ended and blobs without "
            "references were deleted, or raise limits.max_mailbox_memory_bytes",
        )  # fmt: skip

    def check_waiting(self, tenant: Tenant) -> None:
        """Check that one more fetch of ``tenant`` may wait. Raises RateLimitRejectedError."""
        self.waiting.check(
            tenant, 1, MAX_WAITING_FETCHES, self._limits().max_principal_percent,
            unit="fetches that wait", limit="waiting_fetches", name="waiting",
            full="{total} fetches would wait for messages, at most {maximum} may: retry later, or fetch without a wait",
        )  # fmt: skip
