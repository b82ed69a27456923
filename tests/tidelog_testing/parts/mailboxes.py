"""A mailbox without a log: its state, and steps at chosen times."""

from collections.abc import Sequence
from random import Random

from tidelog_server.core.mailboxes import MailboxSettings
from tidelog_server.core.ticks import LOGICAL_BITS, compose
from tidelog_server.fold.pages import frozen
from tidelog_server.mailboxes.events import replay_all
from tidelog_server.mailboxes.operations import Grant, Outgoing, Step, fetch, pass_time, send
from tidelog_server.mailboxes.outbox import Outbox
from tidelog_server.mailboxes.snapshot import freeze
from tidelog_server.mailboxes.state import MailboxState

START_MS = 1_700_000_000_000
# A step has one millisecond, which has this number of ticks.
STEP_TICKS = 1 << LOGICAL_BITS


class SmallMailbox:
    """The state of a mailbox, its settings, and the events of all steps but the current one."""

    def __init__(self, settings: MailboxSettings | None = None) -> None:
        self.settings = settings or MailboxSettings()
        self.state = MailboxState()
        self.events: list[tuple[int, int, bytes]] = []
        self.keeps_events = True
        self._random = Random(1)
        self._now: int = compose(START_MS)
        self.step = self._begin()

    def later(self, ms: int = 1) -> Step:
        """End the step, and begin one `ms` later."""
        outbox = self.step.outbox
        outbox.close()
        assert len(outbox.payloads) < STEP_TICKS
        if self.keeps_events:
            ticks = range(outbox.base, outbox.base + len(outbox.payloads))
            self.events += zip(ticks, outbox.types, outbox.payloads, strict=True)
        self._now += ms << LOGICAL_BITS
        self.step = self._begin()
        return self.step

    def _begin(self) -> Step:
        step = Step("m", self.settings, self.state, Outbox(self._now), self._now, self._random.randbytes)
        pass_time(step)
        return step

    def send(self, *messages: Outgoing) -> list[int]:
        """Send messages in the current step; return their ids."""
        return list(send(self.step, messages).ids)

    def fetch(self, count: int = 1, lease_ms: int = 100, max_bytes: int = 1 << 40) -> Sequence[Grant]:
        """Fetch in the current step."""
        return fetch(self.step, count, lease_ms, max_bytes).grants

    def replayed(self) -> MailboxState:
        """Return the fold of the events, at the time of the current step."""
        return self.replay(MailboxState())

    def replay(self, state: MailboxState) -> MailboxState:
        """Apply the events to an empty state, and return it at the time of the current step."""
        replay_all(state, self.events)
        state.advance(self.step.now)
        return state


def pages_of(encoded: bytes) -> list[bytes]:
    """Return the pages of a snapshot."""
    snapshot = frozen(encoded)
    return [snapshot.next_page() for _ in range(snapshot.pages)]


def encode_snapshot(state: MailboxState) -> bytes:
    """Return the snapshot of a mailbox."""
    return b"".join(freeze(state).parts)
