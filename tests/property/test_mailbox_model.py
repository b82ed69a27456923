"""A mailbox does what a plain model of it does, and its state is the fold of its log.

Method: random programs on two mailboxes, one of which receives the dead letters of the other. Time moves forward by
random amounts, often to the exact tick at which something happens, and each step has several operations. After each
step the state equals that of the model (`tidelog_testing/oracles/mailboxes.py`), and a replay of the whole log is a
state with the same messages, locks, keys, groups and counts, which delivers the rest in the same order. So is the state
in a snapshot.

Promises of docs/reference/guarantees.md: G55.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog_server.core.dedup_keys import hash_of
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.mailboxes import (
    AlreadyAcknowledgedError,
    InvalidDelayError,
    LockExpiredError,
    LockUnknownError,
    MailboxFullError,
)
from tidelog_server.core.limits import LOCK_BYTES, MAX_MAILBOX_BATCH, MAX_MAILBOX_DELAY_MS
from tidelog_server.core.mailboxes import MailboxSettings, MessageState
from tidelog_server.core.ticks import LOGICAL_BITS, compose
from tidelog_server.mailboxes.events import (
    EventType,
    decode_sent,
    encode_relocated,
    replay_all,
    stored_message,
)
from tidelog_server.mailboxes.messages.locks import LockEnd
from tidelog_server.mailboxes.operations import (
    LockFailures,
    Outgoing,
    Rejection,
    Step,
    acknowledge,
    bury,
    check_bodies,
    check_outgoing,
    extend,
    fetch,
    give_away,
    lease_of,
    pass_time,
    pause,
    purge,
    receive,
    redrive_here,
    reenqueue,
    send,
    send_bodies,
)
from tidelog_server.mailboxes.outbox import Outbox
from tidelog_server.mailboxes.snapshot import decode_snapshot
from tidelog_server.mailboxes.state import MailboxState
from tidelog_testing.oracles.mailboxes import Draft, MailboxModel, Message, ticks
from tidelog_testing.parts.mailboxes import encode_snapshot
from tidelog_testing.parts.soaks import extended, soak

EXAMPLES, EXTENDED_EXAMPLES, SOAK_EXAMPLES = 60, 200, 1_000
STEPS = 40
START = compose(1_700_000_000_000)
# Events of a step, at most; the ticks of a step are that many.
STEP_TICKS = 10_000
# A seed, and not `st.randoms`: that one prefers extreme numbers.
SEEDS = st.integers(0, 2**64 - 1)
# A time at which all leases are over, and all messages are due.
FAR = START << 1
MANY = 1 << 40


class Event(NamedTuple):
    """A message of the log."""

    tick: int
    kind: int
    payload: bytes


class Mailbox:
    """A mailbox, its log and its model."""

    def __init__(self, name: str, chance: Random) -> None:
        self.name = name
        self.chance = chance
        self.settings = MailboxSettings()
        self.state = MailboxState()
        self.model = MailboxModel()
        self.log: list[Event] = []
        self.locks: list[bytes] = []
        # Without others, the messages of a group are often in all states.
        self.groups = chance.choice([("", "", "g", "h"), ("g", "h"), ("g",)])
        self.step = self.begin(START, START)

    def begin(self, base: int, now: int) -> Step:
        """Begin a step, and let time pass."""
        self.step = Step(self.name, self.settings, self.state, Outbox(base), now, self.chance.randbytes)
        pass_time(self.step)
        self.model.pass_time(now)
        return self.step

    def finish(self) -> None:
        """Write the events of the step."""
        outbox = self.step.outbox
        outbox.close()
        for index, (kind, payload) in enumerate(zip(outbox.types, outbox.payloads, strict=True)):
            self.log.append(Event(outbox.base + index, kind, payload))
        assert not self.log or self.log[-1].tick < outbox.base + STEP_TICKS

    def configure(self, changed: MailboxSettings) -> None:
        self.step.outbox.add(EventType.CONFIGURED, b"")
        self.settings = self.step.settings = self.model.settings = changed

    def stored(self, message_id: int, place: int) -> bytes:
        """Return a stored message, whose event is at a tick, also of this step."""
        outbox = self.step.outbox
        if place >= outbox.base:
            return stored_message(message_id, place, outbox.payloads[place - outbox.base])
        (event,) = [each for each in self.log if each.tick == place]
        return stored_message(message_id, place, event.payload)

    def some(self, *states: MessageState) -> list[int]:
        """Return the ids of some messages in these states."""
        ids = [each.message_id for each in self.model.of(*states)]
        return self.chance.sample(ids, self.chance.randint(0, len(ids)))


# -- Operations --------------------------------------------------------------------------------------------


def run_send_bodies(box: Mailbox, _: Mailbox) -> None:
    bodies = [box.chance.randbytes(box.chance.randint(0, 20)) for _ in range(box.chance.randint(1, 5))]
    check_bodies(box.name, box.settings, bodies)
    compare_send(box, [Outgoing(body) for body in bodies], lambda: send_bodies(box.step, bodies))


def run_send(box: Mailbox, _: Mailbox) -> None:
    messages = [outgoing(box) for _ in range(box.chance.randint(1, 5))]
    check_outgoing(box.name, box.settings, messages)
    compare_send(box, messages, lambda: send(box.step, messages))


def outgoing(box: Mailbox) -> Outgoing:
    chance, now_ms = box.chance, box.step.now >> LOGICAL_BITS
    return Outgoing(
        chance.randbytes(chance.randint(0, 20)),
        {"h": "v"} if chance.random() < 0.2 else {},
        delay_ms=chance.choice([None, None, 0, 1, 50, 1_000]),
        due_ms=chance.choice([None, None, None, 0, now_ms - 5, now_ms, now_ms + 1, now_ms + 60]),
        priority=chance.choice([0, 0, 0, 1, 255]),
        group=chance.choice(box.groups),
        key=chance.choice(["", "", "", "k", "l"]),
        ttl_ms=chance.choice([None, None, 0, 1, 40, 2_000]),
        overdue_ms=chance.choice([None, None, None, None, 0, 1, 70, now_ms + 1]),
    )


def draft_of(box: Mailbox, message: Outgoing) -> Draft:
    """Return a message with its times as ticks."""
    now, defaults = box.step.now, box.settings
    delay_ms = defaults.delay_ms if message.delay_ms is None else message.delay_ms
    due = now + ticks(delay_ms) if delay_ms else 0
    if message.overdue_ms is not None:
        due = max(1, now - ticks(message.overdue_ms)) if message.overdue_ms else 0
    if message.due_ms is not None:
        due = max(1, ticks(message.due_ms))
    ttl_ms = defaults.ttl_ms if message.ttl_ms is None else message.ttl_ms
    expires = now + ticks(ttl_ms) if ttl_ms else 0
    return Draft(message.body, due, expires, message.priority, message.group, message.key)


def compare_send(box: Mailbox, messages: Sequence[Outgoing], run: Callable[[], object]) -> None:
    first_id = box.step.outbox.next_tick
    expected = box.model.send([draft_of(box, each) for each in messages], first_id, box.step.now)
    if expected is None:
        with pytest.raises(MailboxFullError):
            run()
        assert box.step.outbox.next_tick == first_id
        return
    sent = run()
    assert (list(sent.ids), list(sent.duplicates)) == expected  # type: ignore[attr-defined]  # it was sent


def run_refused(box: Mailbox, _: Mailbox) -> None:
    """Run a request that is invalid as a whole."""
    step, first_id = box.step, box.step.outbox.next_tick
    lock_id = box.chance.choice([*box.locks, b"?"])
    far_ms = (step.now >> LOGICAL_BITS) + MAX_MAILBOX_DELAY_MS + 1
    requests: list[tuple[type[Exception], Callable[[], object]]] = [
        (InvalidDelayError, lambda: send(step, [Outgoing(b"1", group="new"), Outgoing(b"2", due_ms=far_ms)])),
        (InvalidRequestError, lambda: acknowledge(step, (), ())),
        (InvalidRequestError, lambda: acknowledge(step, [lock_id] * MAX_MAILBOX_BATCH, [Rejection(lock_id)])),
        (InvalidDelayError, lambda: acknowledge(step, [lock_id], [Rejection(lock_id, -1)])),
        (InvalidRequestError, lambda: extend(step, (), 1)),
        (InvalidRequestError, lambda: extend(step, [lock_id] * (MAX_MAILBOX_BATCH + 1), 1)),
    ]
    error, request = box.chance.choice(requests)
    if error is InvalidDelayError and box.settings.max_messages < len(box.model.messages) + 2:
        return
    with pytest.raises(error):
        request()
    assert step.outbox.next_tick == first_id


def run_fetch(box: Mailbox, _: Mailbox) -> None:
    chance = box.chance
    max_messages, max_bytes = chance.choice([1, 2, 3, 100]), chance.choice([0, 10, 30, MANY])
    lease_ms = lease_of(box.name, box.settings, chance.choice([None, 1, 100, box.settings.max_lease_ms]))
    fetched = fetch(box.step, max_messages, lease_ms, max_bytes)
    statuses = {each.message_id: each.status for each in box.model.messages}
    expected = box.model.fetch(max_messages, max_bytes, box.step.now + ticks(lease_ms))
    assert fetched.until == box.step.now + ticks(lease_ms)
    assert [each.message_id for each in fetched.grants] == [each.message_id for each in expected]
    for grant, message in zip(fetched.grants, expected, strict=True):
        assert (grant.place, grant.delivery_count, grant.due_tick, grant.size_bytes) == (
            message.place, message.deliveries, message.due, len(message.body),
        )  # fmt: skip
        assert grant.status == statuses[message.message_id]
        assert decode_sent(box.stored(grant.message_id, grant.place)).body == message.body
        assert len(grant.lock_id) == LOCK_BYTES
        message.lock_id = grant.lock_id
        box.locks.append(grant.lock_id)


def some_locks(box: Mailbox, other: Mailbox) -> list[bytes]:
    """Return locks: mostly valid ones, also ended and foreign ones, and some twice."""
    chance = box.chance
    valid = [each.lock_id for each in box.model.of(MessageState.LEASED)]
    locks = chance.sample(valid, chance.randint(0, len(valid)))
    wrong = [*box.locks, *other.locks, chance.randbytes(LOCK_BYTES), b"", *locks]
    return locks + [chance.choice(wrong) for _ in range(chance.choice([0, 0, 1, 2]))]


def refusal(box: Mailbox, lock_id: bytes) -> type[Exception]:
    """Return why a lock is refused that is not valid."""
    how = box.model.end_of(lock_id)
    if how is None:
        return LockUnknownError
    return LockExpiredError if how is LockEnd.EXPIRED else AlreadyAcknowledgedError


def failures_of(result: LockFailures) -> list[tuple[bytes, type[Exception]]]:
    return [(lock_id, type(error)) for lock_id, error in result.failures]


def run_acknowledge(box: Mailbox, other: Mailbox) -> None:
    chance, model, now = box.chance, box.model, box.step.now
    confirmed, rejected = list[bytes](), list[Rejection]()
    for lock_id in some_locks(box, other):
        if chance.random() < 0.5:
            confirmed.append(lock_id)
        else:
            rejected.append(Rejection(lock_id, chance.choice([None, None, 0, 1, 300]), chance.random() < 0.2))
    if not confirmed and not rejected:
        return
    result = acknowledge(box.step, confirmed, rejected)
    expected: list[tuple[bytes, type[Exception]]] = []
    for lock_id in confirmed:
        if (message := model.under(lock_id, now)) is None:
            expected.append((lock_id, refusal(box, lock_id)))
        else:
            model.confirm(message)
    for lock_id, delay_ms, is_final in rejected:
        if (message := model.under(lock_id, now)) is None:
            expected.append((lock_id, refusal(box, lock_id)))
        else:
            model.give_back(message, LockEnd.ACKNOWLEDGED, now, delay_ms, is_final=is_final)
    assert failures_of(result) == expected


def run_extend(box: Mailbox, other: Mailbox) -> None:
    locks, lease_ms = some_locks(box, other), box.chance.choice([1, 100, 5_000])
    if not locks:
        return
    until, result = extend(box.step, locks, lease_ms)
    assert until == box.step.now + ticks(lease_ms)
    expected = []
    for lock_id in dict.fromkeys(locks):
        if (message := box.model.under(lock_id, box.step.now)) is None:
            expected.append((lock_id, refusal(box, lock_id)))
        else:
            message.until = until
    assert failures_of(result) == expected


def run_pause(box: Mailbox, _: Mailbox) -> None:
    is_paused = not box.model.is_paused and box.chance.random() < 0.3
    pause(box.step, is_paused=is_paused)
    box.model.is_paused = is_paused


def run_purge(box: Mailbox, _: Mailbox) -> None:
    assert purge(box.step) == box.model.purge()


def run_reenqueue(box: Mailbox, _: Mailbox) -> None:
    ids = [*box.some(*MessageState), 1]
    leased = [each for each in ids if each in {held.message_id for held in box.model.of(MessageState.LEASED)}]
    assert reenqueue(box.step, [*ids, *ids]) == len(leased)
    for message_id in leased:
        box.model.give_back(box.model.get(message_id), LockEnd.EXPIRED, box.step.now, 0)


def run_bury(box: Mailbox, _: Mailbox) -> None:
    ids = box.chance.choice([box.model.exhausted[:], box.model.exhausted[:1], box.some(MessageState.EXHAUSTED)])
    if ids:
        bury(box.step, ids)
        box.model.bury(ids)


def run_redrive_here(box: Mailbox, _: Mailbox) -> None:
    ids = [*box.some(MessageState.DEAD), *box.some(MessageState.LEASED), 1]
    assert redrive_here(box.step, [*ids, *ids]) == box.model.redrive(ids, box.step.now)


def run_dead_letters(box: Mailbox, other: Mailbox) -> None:
    move(box, other, EventType.DEAD_LETTERED, box.some(MessageState.EXHAUSTED))


def run_redrive_there(box: Mailbox, other: Mailbox) -> None:
    move(box, other, EventType.MOVED, box.some(MessageState.DEAD, MessageState.AVAILABLE, MessageState.DELAYED))


def move(box: Mailbox, other: Mailbox, kind: EventType, ids: Sequence[int]) -> None:
    if not ids:
        return
    messages = [decode_sent(box.stored(each, box.model.get(each).place)) for each in ids]
    first_id = other.step.outbox.next_tick
    give_away(box.step, kind, ids)
    box.model.remove(ids)
    receive(other.step, messages)
    for index, message in enumerate(messages):
        draft = Draft(message.body, message.due_tick, message.expires_tick, message.priority, message.group)
        other.model.add(draft, first_id + index)


def run_relocate(box: Mailbox, _: Mailbox) -> None:
    """Copy the bodies of messages to the end of the log, as before a trim."""
    for message_id in [*box.some(*MessageState), 1]:
        place = box.model.get(message_id).place if message_id > 1 else 0
        tick = box.step.outbox.next_tick
        box.step.outbox.add(
            EventType.RELOCATED, encode_relocated(message_id, box.stored(message_id, place) if place else b"")
        )
        box.state.relocated(message_id, tick)
        if place:
            box.model.get(message_id).place = tick


def run_configure(box: Mailbox, _: Mailbox) -> None:
    choice = box.chance.choice
    box.configure(
        box.settings.changed(
            lease_ms=choice([1, 30, 1_000]), max_deliveries=choice([0, 1, 1, 2, 3]), delay_ms=choice([0, 0, 0, 20]),
            backoff_ms=choice([(), (0,), (10, 200)]), ttl_ms=choice([0, 0, 0, 500]),
            dedup_window_ms=choice([1_000, 3_000]), max_in_flight=choice([1, 3, 1_000]),
            max_messages=choice([1, 5, 1_000]),
        )
    )  # fmt: skip


OPERATIONS: dict[Callable[[Mailbox, Mailbox], None], int] = {
    run_send_bodies: 2, run_send: 4, run_fetch: 10, run_acknowledge: 10, run_extend: 2, run_pause: 1, run_reenqueue: 1,
    run_bury: 3, run_redrive_here: 3, run_dead_letters: 2, run_redrive_there: 1, run_relocate: 1, run_configure: 1,
    run_refused: 1, run_purge: 1,
}  # fmt: skip
# A purge ends most of what a program has built up.
RARE = (run_purge, run_configure)


# -- Comparisons -------------------------------------------------------------------------------------------


def rows_of(state: MailboxState) -> list[tuple[object, ...]]:
    rows = state.rows
    return [
        (
            rows.ids[row], rows.due[row], rows.expires[row], rows.until[row], rows.places[row], rows.deliveries[row],
            rows.sizes[row], rows.states[row], rows.statuses[row], rows.priorities[row],
            state.groups.name_of(rows.groups[row]),
        )
        for row in rows.live_rows()
    ]  # fmt: skip


def row_of(message: Message) -> tuple[object, ...]:
    return (
        message.message_id, message.due, message.expires, message.until, message.place, message.deliveries,
        len(message.body), message.state, message.status, message.priority, message.group,
    )  # fmt: skip


def check_invariants(state: MailboxState) -> None:
    """Check INV-50, INV-52 and INV-53; INV-51 is checked by the comparison with the model."""
    rows = state.rows
    leased = [rows.ids[row] for row in rows.live_rows() if rows.states[row] == MessageState.LEASED]
    locks = dict(state.locks.by_message.items())
    assert sorted(locks) == leased
    assert {state.locks.message_of(lock_id) for lock_id in locks.values()} == set(leased)
    assert len(set(locks.values())) == len(locks) == len(state.locks) == state.leases
    states = [rows.states[row] for row in rows.live_rows()]
    counts = state.counts()
    assert counts.available == states.count(MessageState.AVAILABLE)
    assert counts.delayed == states.count(MessageState.DELAYED)
    assert counts.leased == states.count(MessageState.LEASED)
    assert counts.dead == states.count(MessageState.DEAD) + states.count(MessageState.EXHAUSTED)
    assert counts.body_bytes == state.body_bytes == sum(rows.sizes[row] for row in rows.live_rows())
    available = [rows.ids[row] for row in rows.live_rows() if rows.states[row] == MessageState.AVAILABLE]
    assert state.oldest_id == min(available, default=0)
    for group in state.groups.by_number.values():
        members = [row for row in rows.live_rows() if rows.groups[row] == group.number]
        held = [rows.ids[row] for row in members if rows.states[row] == MessageState.LEASED]
        assert group.size == len(members)
        assert held == ([group.in_flight] if group.in_flight else [])


def compare_with_model(box: Mailbox) -> None:
    state, model = box.state, box.model
    assert rows_of(state) == [row_of(each) for each in model.messages]
    assert {lock_id: message_id for message_id, lock_id in state.locks.by_message.items()} == {
        each.lock_id: each.message_id for each in model.of(MessageState.LEASED)
    }
    # A purge ends all leases at once, in any order.
    assert sorted(state.locks.all_ended()) == sorted(model.ended)
    assert {hashed: (found, until) for hashed, found, until in state.keys.all() if until > model.now} == {
        hash_of(key): found for key, found in model.keys.items() if found[1] > model.now
    }
    assert list(state.exhausted) == model.exhausted
    assert (state.is_paused, state.now) == (model.is_paused, model.now)
    names = {group.name for group in state.groups.by_number.values()}
    assert names == {each.group for each in model.messages if each.group}


def compare_with_replay(box: Mailbox) -> None:
    live, replayed = deepcopy(box.state), MailboxState()
    replay_all(replayed, box.log)
    check_invariants(replayed)
    now = max(live.now, replayed.now)
    live.advance(now)
    replayed.advance(now)
    assert observed(live) == observed(replayed)
    restored = decode_snapshot(encode_snapshot(replayed))
    check_invariants(restored)
    # A snapshot has exhausted messages in the order of their ids.
    assert sorted(restored.exhausted) == sorted(replayed.exhausted)
    restored.exhausted = deepcopy(replayed.exhausted)
    assert observed(restored) == observed(replayed)
    assert deliveries(live) == deliveries(replayed) == deliveries(restored)


def observed(state: MailboxState) -> list[object]:
    """Return all that can be asked about a state."""
    all_groups, locks = state.groups.by_number.values(), list(state.locks.by_message.items())
    groups = sorted((group.name, group.number, group.size, group.in_flight) for group in all_groups)
    return [
        rows_of(state), state.counts(), state.oldest_id, locks, list(state.locks.all_ended()), groups,
        sorted(state.keys.all()), list(state.exhausted), state.is_paused, state.now,
    ]  # fmt: skip


def deliveries(state: MailboxState) -> list[object]:
    """Deliver and confirm messages until no more come, now and then at a later time; return what was delivered."""
    order: list[object] = []
    for now in (state.now, FAR):
        state.advance(now)
        order += [state.order.overdue_leases(MANY, state.now), state.order.overdue_messages(MANY, state.now)]
        while at := state.order.take(3, MANY, state.now):
            ids = [state.rows.ids[row] for row in at]
            state.leased(FAR << 1, ids, [b"%d" % each for each in ids], at)
            state.confirmed(ids)
            order.append(ids)
    return order


# -- Programs ----------------------------------------------------------------------------------------------


def next_base(chance: Random, boxes: Sequence[Mailbox], tick: int) -> int:
    """Return a later tick, often one at which something happens."""
    later = [each for box in boxes if (each := box.state.order.next_tick()) is not None and each > tick]
    if later and chance.random() < 0.5:
        return max(tick, chance.choice(later) + chance.choice([-1, 0, 0, 1]))
    return tick + chance.choice([0, 1, ticks(1), ticks(1), ticks(30), ticks(30), ticks(400), ticks(5_000)])


def run_program(seed: int, part: int) -> None:
    chance = Random(seed << 8 | part)
    boxes = (Mailbox("work", chance), Mailbox("dead", chance))
    operations, weights = list(OPERATIONS), list(OPERATIONS.values())
    start = tick = START + chance.choice([0, (1 << LOGICAL_BITS) - 3])
    for _ in range(STEPS):
        base = next_base(chance, boxes, tick)
        # A step may begin a moment before its ticks are allocated.
        now = max(tick, base - chance.choice([0, 0, 1, ticks(1)]))
        for box in boxes:
            box.begin(base, now)
        if tick == start:
            run_configure(*boxes)
            run_configure(*boxes[::-1])
        for _ in range(chance.randint(0, 5)):
            operation = chance.choices(operations, weights)[0]
            if operation not in RARE or chance.random() < 0.2:
                box, other = chance.choice([boxes, boxes, boxes[::-1]])
                operation(box, other)
        for box in boxes:
            box.finish()
            check_invariants(box.state)
            compare_with_model(box)
            compare_with_replay(box)
        tick = base + STEP_TICKS


def check(examples: int, part: int) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None)
    @given(SEEDS)
    def does_what_the_model_does(seed: int) -> None:
        run_program(seed, part)

    does_what_the_model_does()


@pytest.mark.parametrize(
    ("examples", "part"),
    [(EXAMPLES, 0), extended(EXTENDED_EXAMPLES, 6), *(soak(SOAK_EXAMPLES, part) for part in range(1, 6))],
)
def test_a_mailbox_does_what_its_model_does(examples: int, part: int) -> None:
    check(examples, part)
