"""Moves messages between mailboxes: dead letters, and redrives of them. Each move is one atomic write."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import structlog

from tidelog_server.core.errors import InvalidRequestError, TidelogServerError
from tidelog_server.core.limits import MIB
from tidelog_server.fold.calls import Call
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.events import EventType, Origin, Sent, encode_sent
from tidelog_server.mailboxes.joint import JointPart, JointStep, write_jointly
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import Step, give_away, receive
from tidelog_server.mailboxes.reader import BodyReader
from tidelog_server.mailboxes.wanted import Wanted
from tidelog_server.runtime.failpoints import Failpoint, hit

MOVE_MESSAGES: Final = 100
"""Messages that one write moves."""
_MOVE_BYTES: Final = 1 * MIB
# A move that failed is tried again after this time, which doubles each time up to the second.
_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 60.0
_log = structlog.get_logger()

OpenByName = Callable[[str], Awaitable[Mailbox]]
"""Returns the open mailbox of a name. Raises TidelogServerError if this node does not own it."""


class Mover:
    """Moves exhausted messages to the mailboxes for dead letters. Lives on the event loop."""

    def __init__(self, node: LogNode, reader: BodyReader, open_by_name: OpenByName) -> None:
        self._node = node
        self._reader = reader
        self._open_by_name = open_by_name
        self._wanted = Wanted[Mailbox]()
        # Mailboxes whose last move failed, with the time of waiting, until a move succeeds.
        self._delays_s: dict[Mailbox, float] = {}
        # Those of them that wait.
        self._waiting: set[Mailbox] = set()

    def look(self, mailbox: Mailbox) -> None:
        """Queue a mailbox that has exhausted messages. Called after each step, so it is cheap."""
        if mailbox.state.exhausted and mailbox.settings.dead_letter and mailbox not in self._waiting:
            self._wanted.add(mailbox)

    async def run(self) -> None:
        """Move the exhausted messages of queued mailboxes. Never returns."""
        while True:
            mailbox = await self._wanted.next()
            try:
                await self._move_exhausted(mailbox)
            except TidelogServerError as error:
                self._retry(mailbox, error)
            else:
                self._delays_s.pop(mailbox, None)

    def _retry(self, mailbox: Mailbox, error: TidelogServerError) -> None:
        """Try again later: the messages stay exhausted."""
        if mailbox.is_closed:
            self._delays_s.pop(mailbox, None)
            return
        delay_s = self._delays_s[mailbox] = min(2 * self._delays_s.get(mailbox, _RETRY_S / 2), _MAX_RETRY_S)
        _log.warning(
            "dead_letters_not_moved", mailbox=mailbox.name, dead_letter=mailbox.settings.dead_letter,
            problem=error.message, retry_s=delay_s,
        )  # fmt: skip
        self._waiting.add(mailbox)
        asyncio.get_running_loop().call_later(delay_s, self._look_again, mailbox)

    def _look_again(self, mailbox: Mailbox) -> None:
        self._waiting.discard(mailbox)
        self.look(mailbox)

    async def _move_exhausted(self, mailbox: Mailbox) -> None:
        while mailbox.state.exhausted and mailbox.settings.dead_letter and not mailbox.is_closed:
            target = await self._open_by_name(mailbox.settings.dead_letter)
            ids = list(islice(mailbox.state.exhausted, MOVE_MESSAGES))
            await self.move(mailbox, target, ids, EventType.DEAD_LETTERED)

    async def move(self, source: Mailbox, target: Mailbox, message_ids: Sequence[int], kind: EventType) -> int:
        """Move messages that are not leased; return the number of those that were still there.

        Each write moves at most _MOVE_BYTES of bodies, but at least one message.

        Raises:
            InvalidRequestError: Both are the same mailbox. Nothing happened.
            TidelogServerError: A mailbox was deleted, or the log failed. Messages of earlier writes are moved.
        """
        if source is target:
            raise InvalidRequestError(
                f"messages of mailbox '{source.name}' cannot be moved to itself: name another destination, or none",
                field="destination",
            )
        return sum([await self._move_part(source, target, part, kind) for part in _parts(source, message_ids)])

    async def _move_part(self, source: Mailbox, target: Mailbox, message_ids: Sequence[int], kind: EventType) -> int:
        """Move messages in one write; return the number of those that were still there and not leased."""
        letters = await self._read(source, message_ids, is_dead=kind is EventType.DEAD_LETTERED)
        moved: list[int] = []

        def give(step: Step) -> None:
            # Decided here: a message may have been purged or delivered while its body was read.
            moved.extend(message_id for message_id in letters if _is_movable(source, message_id))
            if moved:
                give_away(step, kind, moved)

        def take(step: Step) -> None:
            receive(step, [letters[message_id] for message_id in moved])

        size_bytes = sum(len(encode_sent(letter)) for letter in letters.values())
        joint = JointStep(
            [
                JointPart(source, Call(give, events=1)),
                JointPart(target, Call(take, events=len(letters), size_bytes=size_bytes)),
            ]
        )
        await write_jointly(self._node, joint)
        hit(Failpoint.MAILBOX_MOVED)
        return len(moved)

    async def _read(self, source: Mailbox, message_ids: Sequence[int], *, is_dead: bool) -> dict[int, Sent]:
        """Return the messages as the other mailbox receives them."""
        letters = dict[int, Sent]()
        stored = await self._reader.messages(source, message_ids)
        # A purge has replaced the rows.
        rows = source.state.rows
        for message_id, message in stored.items():
            row = rows.find(message_id)
            if row < 0:
                continue
            origin = Origin(source.mailbox_id, message_id, rows.deliveries[row]) if is_dead else None
            letters[message_id] = replace(message, due_tick=0, expires_tick=0, key="", key_until=0, origin=origin)
        return letters


def _parts(source: Mailbox, message_ids: Sequence[int]) -> list[list[int]]:
    """Return the messages of the mailbox in parts of at most _MOVE_BYTES of bodies, but at least one message."""
    rows, parts, size_bytes = source.state.rows, list[list[int]](), 0
    for message_id in message_ids:
        if (row := rows.find(message_id)) < 0:
            continue
        size_bytes += rows.sizes[row]
        if not parts or size_bytes > _MOVE_BYTES:
            parts.append([])
            size_bytes = rows.sizes[row]
        parts[-1].append(message_id)
    return parts


def _is_movable(source: Mailbox, message_id: int) -> bool:
    row = source.state.rows.find(message_id)
    return row >= 0 and not source.state.rows.until[row]
