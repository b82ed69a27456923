"""Checkpoints in a channel of a Tidelog server, for consumers whose state is in Tidelog too.

The fence is the fencing token of the channel's vchannel: each acquisition sets a greater one, and the transaction of a
commit appends its checkpoint on the condition that the vchannel still has the token of its instance.
"""

import logging
import secrets
from collections.abc import Mapping
from typing import Final

from tidelog.client import AsyncClient
from tidelog.errors import FencedError, TidelogError, TransactionStateError
from tidelog.gazette.checkpoints import Checkpoint
from tidelog.gazette.errors import MissingJournalError
from tidelog.gazette.journal_lookup import finder
from tidelog.gazette.messages import Journal, Offset
from tidelog.gazette.stores.errors import ENDED_BY_HANDLER, NOT_OPEN, ConsumerFencedError, check_begin, check_name
from tidelog.message import Message
from tidelog.tick import Tick
from tidelog.txn.transaction import AsyncTransaction
from tidelog.types import PositionCommit

CHANNEL_PREFIX: Final = "gazette.checkpoints."
"""The default channel of a consumer is this and its name."""
# A message has at most 1 MiB.
PART_BYTES: Final = 1 << 19
# Checkpoints before the last one are deleted after this number of commits: an acquisition reads at most as many.
COMMITS_PER_TRIM: Final = 100
# Positions of groups that the server accepts in a transaction.
POSITIONS_PER_TRANSACTION: Final = 256
# Range of the random part of a token above the ticks, so that two instances at the same time take different ones.
TOKEN_SPREAD: Final = 1 << 32
_log: Final = logging.getLogger("tidelog")


class AsyncTidelogCheckpointStore:
    """A consumer's checkpoint in a channel of its own, which is created if missing.

    The handler gets an ``AsyncTransaction``: what it appends, the checkpoint, and positions of the consumer group with
    the consumer's name are committed together. The group's position in a journal is that of the first message that may
    be read again, so its lag is the consumer's lag and retention keeps what the consumer needs. If more than 256
    positions have changed, those beyond 256 are committed after the transaction, and with the next one if that fails.
    The channel contains checkpoints only, and the store deletes old ones, for which the caller needs
    ``channel.truncate`` on it; if this fails, it logs a warning and tries again at the next commit.

    Args:
        client: Client of the server, which the caller closes.
        consumer: Name of the consumer and of its group, unique in the server.
        channel: Name of the channel; by default ``gazette.checkpoints.<consumer>``, for which the name must consist of
            the characters of a channel's name.
    """

    def __init__(self, client: AsyncClient, consumer: str, *, channel: str = "") -> None:
        check_name(consumer)
        self._client = client
        self._consumer = consumer
        self._vchannel = f"{channel or CHANNEL_PREFIX + consumer}/0"
        self._transaction: AsyncTransaction | None = None
        # The fencing token of the acquisition; 0 if the store is not acquired.
        self._token = 0
        # First tick of the last checkpoint; 0 before the first.
        self._last_tick = Tick(0)
        # Commits since checkpoints were deleted.
        self._commits = 0
        self._find = finder(client.journals)
        # The channel of each journal to whose channel the group is subscribed; empty for a journal that is missing.
        self._channels: dict[Journal, str] = {}
        # The position of the group in each vchannel, as this acquisition has committed it.
        self._positions: dict[str, Offset] = {}

    async def acquire(self) -> Checkpoint:
        """Fence earlier instances and return the last checkpoint. See ``AsyncCheckpointStore.acquire``."""
        self._token = 0
        await self.rollback()
        await self._client.ensure_channel(self._vchannel.partition("/")[0])
        token = await self._raise_token()
        # Ordering: with the token raised, no earlier instance can commit after what is read now.
        checkpoint = await self._last_checkpoint()
        if self._last_tick:
            await self._client.trim(self._vchannel, self._last_tick)
        self._token, self._commits, self._channels, self._positions = token, 0, {}, {}
        return checkpoint

    async def begin(self) -> AsyncTransaction:
        """Begin a transaction and return it. See ``AsyncCheckpointStore.begin``."""
        check_begin(is_acquired=self._token != 0, is_open=self._transaction is not None)
        self._transaction = self._client.txn()
        return self._transaction

    async def commit(self, checkpoint: Checkpoint) -> None:
        """Commit the open transaction with ``checkpoint``. See ``AsyncCheckpointStore.commit``."""
        transaction, token = self._transaction, self._token
        if transaction is None or not token:
            raise RuntimeError(NOT_OPEN)
        # Until the commit is known to have succeeded. After an error, `rollback` ends the transaction.
        self._token = 0
        moved = await self._moved(checkpoint)
        try:
            await transaction.append(self._vchannel, parts_of(checkpoint.encode()), fencing_token=token)
            transaction.commit_positions(moved[:POSITIONS_PER_TRANSACTION])
        except TransactionStateError as error:
            raise RuntimeError(ENDED_BY_HANDLER) from error
        try:
            result = await transaction.commit()
        except FencedError as error:
            await self.rollback()
            if error.fencing_token != token:
                raise
            raise ConsumerFencedError(self._consumer) from error
        assert result is not None, "the transaction has the messages of the checkpoint"
        self._transaction, self._token, self._last_tick = None, token, result.results[self._vchannel].first_tick
        self._note(moved[:POSITIONS_PER_TRANSACTION])
        await self._commit_positions(moved[POSITIONS_PER_TRANSACTION:])
        self._commits += 1
        if self._commits >= COMMITS_PER_TRIM:
            await self._trim()

    async def rollback(self) -> None:
        """Discard the open transaction; does nothing if no transaction is open."""
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        try:
            await transaction.rollback()
        except TransactionStateError:
            # It is committed, by the handler or with an unknown outcome, so there is nothing to discard.
            return

    async def aclose(self) -> None:
        """Discard the open transaction. Closing again does nothing. The client stays open."""
        self._token = 0
        await self.rollback()

    async def _commit_positions(self, positions: list[PositionCommit]) -> None:
        """Commit positions of the group outside of the transaction; what fails is left to the next commit.

        Why no error: the checkpoint is committed, and the consumer reads from it and not from the group.
        """
        try:
            for begin in range(0, len(positions), POSITIONS_PER_TRANSACTION):
                part = positions[begin : begin + POSITIONS_PER_TRANSACTION]
                await self._client.commit_positions(part)
                self._note(part)
        except TidelogError as error:
            warn(f"positions of group {self._consumer} were not committed", error)

    async def _trim(self) -> None:
        """Delete old checkpoints; if it fails, the next commit tries again."""
        try:
            await self._client.trim(self._vchannel, self._last_tick)
            self._commits = 0
        except TidelogError as error:
            warn(f"old checkpoints of consumer {self._consumer} were not deleted from {self._vchannel}", error)

    async def _raise_token(self) -> int:
        """Set a fencing token that no other instance has, and return it."""
        greatest = 0
        while True:
            # A tick is unique in the cluster and greater than earlier ones of the node.
            token = token_above(greatest, (await self._client.allocate_ticks())[0])
            try:
                await self._client.fence(self._vchannel, token)
            except FencedError as error:
                # Another instance took its token later, and was faster: acquire after it. Or the token was set by an
                # operator, or by a node whose clock was ahead.
                greatest = error.actual_fencing_token
                continue
            return token

    async def _moved(self, checkpoint: Checkpoint) -> list[PositionCommit]:
        """Return the group's positions that have changed: the first message that may have to be read again."""
        begins = checkpoint.begins()
        if missing := begins.keys() - self._channels.keys():
            await self._client.create_group(self._consumer, if_not_exists=True)
            for journal in sorted(missing):
                self._channels[journal] = await self._subscribe(journal)
        moved = moved_positions(begins, self._channels, self._positions)
        return [PositionCommit(self._consumer, vchannel, begin) for vchannel, begin in moved.items()]

    def _note(self, positions: list[PositionCommit]) -> None:
        """Note that positions are committed."""
        self._positions.update((each.vchannel, each.next_tick) for each in positions)

    async def _subscribe(self, journal: Journal) -> str:
        """Subscribe the group to the channel of a journal and return its name; empty if the journal is missing."""
        try:
            # What follows a semicolon is not part of the name; see ReadRequest.
            spec = await self._find(journal.partition(";")[0])
        except MissingJournalError:
            return ""
        await self._client.subscribe_group(self._consumer, spec.channel)
        return spec.channel

    async def _last_checkpoint(self) -> Checkpoint:
        """Return the last checkpoint in the channel, and note its tick; an empty one at first."""
        parts: list[bytes] = []
        checkpoint, first_tick = b"", Tick(0)
        async for batch in self._client.scan(self._vchannel):
            for message in batch:
                first_tick = first_tick if parts else message.tick
                parts.append(message.payload)
                if message.type == 0:
                    checkpoint, self._last_tick = b"".join(parts), first_tick
                    parts = []
        return Checkpoint.decode(checkpoint) if checkpoint else Checkpoint()


def parts_of(checkpoint: bytes) -> list[Message]:
    """Return the messages of an encoded checkpoint, whose types count down the messages that follow."""
    parts = [checkpoint[begin : begin + PART_BYTES] for begin in range(0, len(checkpoint), PART_BYTES)] or [b""]
    return [Message(part, type=len(parts) - 1 - index) for index, part in enumerate(parts)]


def moved_positions(
    begins: Mapping[Journal, Offset], channels: Mapping[Journal, str], committed: Mapping[str, Offset]
) -> dict[str, Offset]:
    """Return the positions of vchannels that differ from the committed ones.

    Args:
        begins: Position of each journal; of two names of one journal, the lower position counts.
        channels: The channel of each journal; empty for a journal that is missing.
        committed: The committed position of each vchannel.
    """
    positions: dict[str, Offset] = {}
    for journal, begin in begins.items():
        if channel := channels[journal]:
            vchannel = f"{channel}/0"
            positions[vchannel] = min(begin, positions.get(vchannel, begin))
    return {vchannel: begin for vchannel, begin in positions.items() if committed.get(vchannel) != begin}


def token_above(greatest: int, tick: int) -> int:
    """Return a fencing token above ``greatest`` that no other instance has: ``tick``, which is unique, if it is larger.

    Otherwise it is a random one, because setting the token that a vchannel has succeeds: two instances that both took
    the next number would not fence each other.
    """
    return tick if tick > greatest else greatest + 1 + secrets.randbelow(TOKEN_SPREAD)


def warn(what: str, error: TidelogError) -> None:
    """Log what the next commit tries again, because the checkpoint of this one is committed."""
    _log.warning("%s; the next commit tries again: %s", what, error)
