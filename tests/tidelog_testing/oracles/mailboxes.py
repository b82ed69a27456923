"""A mailbox as a list of messages: every question is answered by looking at all of them.

The model of `tests/property/test_mailbox_model.py`. It has no queues, no events and no counters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog_server.core.mailboxes import DeliveryStatus, MailboxSettings, MessageState
from tidelog_server.core.ticks import LOGICAL_BITS
from tidelog_server.mailboxes.messages.locks import LockEnd

WAITING = (MessageState.AVAILABLE, MessageState.DELAYED)
MEMBERS = (*WAITING, MessageState.LEASED)


def ticks(ms: int) -> int:
    """Return a duration in ticks."""
    return ms << LOGICAL_BITS


@dataclass
class Message:
    """A message of the model; the fields are those of the rows, with the name of the group."""

    message_id: int
    due: int
    expires: int
    priority: int
    group: str
    body: bytes
    place: int
    state: MessageState = MessageState.AVAILABLE
    status: DeliveryStatus = DeliveryStatus.NOT_DELIVERED
    deliveries: int = 0
    until: int = 0
    lock_id: bytes = b""


@dataclass(frozen=True)
class Draft:
    """A message to send, with its times as ticks: `due` is 0 for at once, `expires` 0 for never."""

    body: bytes
    due: int = 0
    expires: int = 0
    priority: int = 0
    group: str = ""
    key: str = ""


class MailboxModel:
    """The messages of a mailbox, and what an operation does to them."""

    def __init__(self) -> None:
        self.settings = MailboxSettings()
        self.messages: list[Message] = []
        self.keys: dict[str, tuple[int, int]] = {}
        self.ended: list[tuple[bytes, int, LockEnd]] = []
        self.exhausted: list[int] = []
        self.is_paused = False
        self.now = 0

    def of(self, *states: MessageState) -> list[Message]:
        """Return the messages in these states."""
        return [each for each in self.messages if each.state in states]

    def get(self, message_id: int) -> Message:
        """Return a message."""
        (found,) = [each for each in self.messages if each.message_id == message_id]
        return found

    def see(self, tick: int) -> None:
        """Note that the time is at least `tick`."""
        self.now = max(self.now, tick)

    # -- Time ----------------------------------------------------------------------------------------------

    def pass_time(self, now: int) -> None:
        self.see(now)
        for each in self.of(MessageState.DELAYED):
            if each.due <= self.now:
                each.state = MessageState.AVAILABLE
        self.keys = {key: (first, until) for key, (first, until) in self.keys.items() if until > self.now}
        overdue = [each for each in self.of(MessageState.LEASED) if each.until <= self.now]
        for each in sorted(overdue, key=lambda each: (each.until, each.message_id)):
            self.give_back(each, LockEnd.EXPIRED, each.until)
        self.messages = [each for each in self.messages if not (each.state in WAITING and self.is_expired(each))]

    def is_expired(self, message: Message) -> bool:
        return 0 < message.expires <= self.now

    def end_lease(self, message: Message, how: LockEnd) -> None:
        self.ended.append((message.lock_id, message.message_id, how))
        message.lock_id, message.until = b"", 0
        message.status = DeliveryStatus.TIMEOUT if how is LockEnd.EXPIRED else DeliveryStatus.REJECTED

    def give_back(
        self, message: Message, how: LockEnd, begin: int, delay_ms: int | None = None, *, is_final: bool = False
    ) -> None:
        """End a lease without a confirmation; a delay counts from the tick `begin`, without one the due time stays."""
        self.end_lease(message, how)
        maximum = self.settings.max_deliveries
        if is_final or (maximum and message.deliveries >= maximum):
            message.state = MessageState.EXHAUSTED
            self.exhausted.append(message.message_id)
        else:
            delay_ms = self.settings.backoff_after(message.deliveries) if delay_ms is None else delay_ms
            self.wait(message, begin + ticks(delay_ms) if delay_ms else message.due)

    def wait(self, message: Message, due: int) -> None:
        message.due = due
        message.state = MessageState.AVAILABLE if due <= self.now else MessageState.DELAYED

    # -- Operations ----------------------------------------------------------------------------------------

    def send(self, drafts: Sequence[Draft], first_id: int, now: int) -> tuple[list[int], list[int]] | None:
        """Add messages; return their ids and the indices of duplicates, or None if there is no room."""
        known = {key: first for key, (first, until) in self.keys.items() if until > now}
        keys = {each.key for each in drafts if each.key} - known.keys()
        added = len([each for each in drafts if not each.key]) + len(keys)
        if len(self.messages) + added > self.settings.max_messages:
            return None
        ids, duplicates = list[int](), list[int]()
        for index, draft in enumerate(drafts):
            if draft.key and draft.key in known:
                duplicates.append(index)
                ids.append(known[draft.key])
                continue
            ids.append(first_id + index - len(duplicates))
            self.add(draft, ids[-1])
            if draft.key:
                known[draft.key] = ids[-1]
                self.keys.pop(draft.key, None)
                self.keys[draft.key] = (ids[-1], now + ticks(self.settings.dedup_window_ms))
        return ids, duplicates

    def add(self, draft: Draft, message_id: int) -> None:
        self.see(message_id)
        message = Message(
            message_id, draft.due or message_id, draft.expires, draft.priority, draft.group, draft.body, message_id
        )
        self.wait(message, message.due)
        self.messages.append(message)

    def next_message(self) -> Message | None:
        """Return the message that is delivered next."""
        ready = [each for each in self.of(MessageState.AVAILABLE) if not self.is_expired(each) and self.is_first(each)]
        return min(ready, key=lambda each: (-each.priority, each.due, each.message_id), default=None)

    def is_first(self, message: Message) -> bool:
        """Return whether no message of its group precedes it."""
        group = [each for each in self.of(*MEMBERS) if each.group and each.group == message.group]
        return not any(each.state == MessageState.LEASED or each.message_id < message.message_id for each in group)

    def fetch(self, max_messages: int, max_bytes: int, until: int) -> list[Message]:
        """Lease messages; the caller sets their locks."""
        fetched: list[Message] = []
        while (
            not self.is_paused
            and len(fetched) < max_messages
            and len(self.of(MessageState.LEASED)) < self.settings.max_in_flight
            and (message := self.next_message()) is not None
            and (not fetched or sum(len(each.body) for each in (*fetched, message)) <= max_bytes)
        ):
            message.state, message.until = MessageState.LEASED, until
            message.deliveries += 1
            fetched.append(message)
        return fetched

    def under(self, lock_id: bytes, now: int) -> Message | None:
        """Return the message that is validly leased under a lock."""
        found = [each for each in self.of(MessageState.LEASED) if each.lock_id == lock_id and each.until > now]
        return found[0] if found else None

    def end_of(self, lock_id: bytes) -> LockEnd | None:
        """Return how a lock ended; None if it is unknown."""
        return next((how for each, _, how in self.ended if each == lock_id), None)

    def confirm(self, message: Message) -> None:
        self.end_lease(message, LockEnd.ACKNOWLEDGED)
        self.remove((message.message_id,))

    def remove(self, message_ids: Iterable[int]) -> None:
        gone = set(message_ids)
        self.messages = [each for each in self.messages if each.message_id not in gone]
        self.exhausted = [each for each in self.exhausted if each not in gone]

    def purge(self) -> int:
        count = len(self.messages)
        for each in self.of(MessageState.LEASED):
            self.end_lease(each, LockEnd.EXPIRED)
        self.remove([each.message_id for each in self.messages])
        return count

    def bury(self, message_ids: Iterable[int]) -> None:
        for message_id in message_ids:
            self.get(message_id).state = MessageState.DEAD
            self.exhausted.remove(message_id)

    def redrive(self, message_ids: Iterable[int], now: int) -> int:
        """Let dead messages wait again; return their number."""
        dead = [each for each in self.of(MessageState.DEAD) if each.message_id in set(message_ids)]
        for each in dead:
            each.deliveries, each.status = 0, DeliveryStatus.NOT_DELIVERED
            if each.expires <= now:
                each.expires = 0
            self.wait(each, now)
        return len(dead)
