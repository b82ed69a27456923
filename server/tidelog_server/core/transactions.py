"""Begun transactions, as far as the store knows them."""

from typing import NamedTuple

from tidelog_server.core.tenants import NO_TENANT, Tenant


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
    def last_tick(self) -> int:
        """Tick of the last message; one less than ``first_tick`` if there was none."""
        return self.first_tick + sum(run.messages for run in self.runs) - 1


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
    """

    version: int
    first_tick: int
    messages: int
    is_synced: bool
    is_last: bool = False

    @property
    def last_tick(self) -> int:
        """Tick of the last message; one less than ``first_tick`` if there was none."""
        return self.first_tick + self.messages - 1


TxnPlace = tuple[int, int]
"""Vchannel id and txn id: what a transaction has staged on one vchannel."""
