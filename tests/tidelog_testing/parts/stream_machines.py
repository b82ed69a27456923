"""The stream machines of the client behind one interface: items are put in order, and the server stores them.

Each machine sends over a stream that it opens on demand and opens again after a break. Items are numbers from 0 on;
what an item is, its class states.
"""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from tidelog import AsyncClient, Client, Retry, TidelogError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.sync_append import JournalClient
from tidelog.journals.types import JournalSpec
from tidelog.mailboxes.operations import Action
from tidelog.v1 import mailbox_service_pb2 as pb

MAX_ITEMS: Final = 100
LARGE: Final = b"x" * 8_000_000
"""More than a server takes in one request."""

Outcome = asyncio.Future[Any]


class Machine(ABC):
    """A machine, with a client of its own. ``async with`` closes both.

    Attributes:
        client: Its client.
    """

    ends_at_give_up: ClassVar = True
    """Whether a call ends after ``Retry.give_up_s``; otherwise after the timeout of the client."""
    channel: ClassVar[str]
    """The channel of its items, or the name of what has them."""

    def __init_subclass__(cls) -> None:
        cls.channel = cls.__name__.lower()

    def __init__(self, endpoint: str, *, timeout_s: float = 30.0, give_up_s: float = 30.0) -> None:
        self.options: dict[str, Any] = {
            "timeout_s": timeout_s, "connect_timeout_s": timeout_s,
            "retry": Retry(base_s=0.05, cap_s=0.2, give_up_s=give_up_s),
        }  # fmt: skip
        self.endpoint = endpoint
        self.client = AsyncClient(endpoint, **self.options)

    @classmethod
    async def prepare(cls, direct: AsyncClient) -> None:
        """Create what the items go to, with a client of its own."""
        await direct.create_channel(cls.channel)

    @abstractmethod
    async def put(self, number: int) -> Outcome:
        """Put an item, and return the future of its outcome. Waits for no answer, but for a member's first message."""

    async def put_large(self) -> Outcome:
        """Put an item that the server does not take."""
        raise NotImplementedError

    async def stored(self, direct: AsyncClient) -> list[int]:
        """Return the items that the server has, in its order."""
        return [int(payload) async for batch in direct.scan(self.channel) for payload in batch.payloads]

    async def close(self) -> None:
        """Close the machine, and wait for its items; if the client is the machine, close that."""
        await self.client.aclose()

    async def close_client(self) -> None:
        """Close the client, whatever is under way."""
        await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        # A test has read the outcomes; the machine may repeat the failure of an item.
        with suppress(TidelogError):
            await self.close()
        await self.close_client()


class Appends(Machine):
    """Items are messages of a producer: numbered batches."""

    def __init__(self, endpoint: str, **bounds: float) -> None:
        super().__init__(endpoint, **bounds)
        self._producer = self.client.producer(self.channel, linger_s=0, max_batch_bytes=8 << 20)

    async def put(self, number: int) -> Outcome:
        return asyncio.ensure_future(await self._producer.send(b"%d" % number))

    async def put_large(self) -> Outcome:
        return asyncio.ensure_future(await self._producer.send(LARGE))

    async def close(self) -> None:
        await self._producer.aclose()


class Transactions(Machine):
    """Items are transactions of one message: each is independent of the others."""

    ends_at_give_up = False

    async def put(self, number: int) -> Outcome:
        return await self._committing(b"%d" % number)

    async def put_large(self) -> Outcome:
        return await self._committing(LARGE)

    async def _committing(self, payload: bytes) -> Outcome:
        txn = self.client.txn()
        await txn.append(self.channel, payload)
        return asyncio.create_task(txn.commit())


class Operations(Machine):
    """Items are messages to a mailbox, each with a deduplication key."""

    ends_at_give_up = False

    @classmethod
    async def prepare(cls, direct: AsyncClient) -> None:
        await direct.mailboxes.create(cls.channel)

    async def put(self, number: int) -> Outcome:
        body = b"%d" % number
        return asyncio.create_task(self.client.mailbox(self.channel).send(body, dedup_key=body.decode()))

    async def put_large(self) -> Outcome:
        request = pb.SendRequest(mailbox=self.channel, bodies=[LARGE])
        return asyncio.create_task(
            self.client.message_calls.operate(
                self.channel, Action.SEND, request.SerializeToString(), is_repeatable=False
            )
        )

    async def stored(self, direct: AsyncClient) -> list[int]:
        return [int(each.body) for each in await direct.mailbox(self.channel).peek(max_messages=MAX_ITEMS)]


async def _find(journal: str) -> JournalSpec:
    return JournalSpec(journal, channel=journal.partition("/")[0])


class Frames(Machine):
    """Items are frames of a journal. A large frame is for another journal, because it stops its own."""

    @classmethod
    async def prepare(cls, direct: AsyncClient) -> None:
        await direct.create_channel(cls.channel)
        await direct.create_channel(f"{cls.channel}-large")

    def __init__(self, endpoint: str, **bounds: float) -> None:
        super().__init__(endpoint, **bounds)
        self._journals = AsyncJournalClient(self.client, find=_find, max_pending_bytes=2 * len(LARGE))

    async def put(self, number: int) -> Outcome:
        return asyncio.ensure_future(self._journals.append(f"{self.channel}/journal", b"%d" % number))

    async def put_large(self) -> Outcome:
        return asyncio.ensure_future(self._journals.append(f"{self.channel}-large/journal", LARGE))

    async def close(self) -> None:
        await self._journals.aclose()


class SyncFrames(Frames):
    """Items are frames, appended with the synchronous client."""

    def __init__(self, endpoint: str, **bounds: float) -> None:
        super().__init__(endpoint, **bounds)
        self._client = Client(self.endpoint, **self.options)
        self._sync_journals = JournalClient(
            self._client, find=lambda journal: asyncio.run(_find(journal)), max_pending_bytes=2 * len(LARGE)
        )

    async def put(self, number: int) -> Outcome:
        return self._put(f"{self.channel}/journal", b"%d" % number)

    async def put_large(self) -> Outcome:
        return self._put(f"{self.channel}-large/journal", LARGE)

    def _put(self, journal: str, frame: bytes) -> Outcome:
        # Shielded: a cancelled future of ``concurrent.futures`` would be cancelled for all callers of its batch.
        return asyncio.ensure_future(
            asyncio.shield(asyncio.wrap_future(self._sync_journals.append(journal, frame).future))
        )

    async def close(self) -> None:
        await asyncio.to_thread(self._sync_journals.close)

    async def close_client(self) -> None:
        await asyncio.to_thread(self._client.close)
        await super().close_client()


class Commits(Machine):
    """Items are commits of a member of a group, each behind one message more."""

    @classmethod
    async def prepare(cls, direct: AsyncClient) -> None:
        await direct.create_channel(cls.channel)
        for number in range(MAX_ITEMS):
            # The messages of two transactions never share a batch.
            async with direct.txn() as txn:
                await txn.append(cls.channel, b"%d" % number)

    def __init__(self, endpoint: str, **bounds: float) -> None:
        super().__init__(endpoint, **bounds)
        self._consumer = self.client.consumer(self.channel, self.channel, auto_commit=False)
        self._has_joined = False

    async def put(self, number: int) -> Outcome:
        if not self._has_joined:
            await self._consumer.join()
            self._has_joined = True
        batch = await anext(self._consumer)
        assert batch.payloads == [b"%d" % number]
        return asyncio.create_task(self._consumer.commit())

    async def stored(self, direct: AsyncClient) -> list[int]:
        positions = (await direct.describe_group(self.channel)).positions
        return list(range(MAX_ITEMS - positions[f"{self.channel}/0"].lag_messages))

    async def close(self) -> None:
        await self._consumer.aclose()


MACHINES: Final = (Appends, Transactions, Operations, Frames, SyncFrames, Commits)
