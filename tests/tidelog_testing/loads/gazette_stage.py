"""A consumer in a process of its own, which tests kill: it counts numbers in its store and publishes each of them.

``python -m tidelog_testing.loads.gazette_stage ENDPOINT STORE INPUTS OUTPUTS``, with journals separated by commas, and
STORE as ``sqlite:PATH``, ``postgres:CONNINFO`` or ``tidelog:NAME``. It ends at SIGTERM, after a commit, and writes what
its tasks wait for to stderr at SIGUSR1.
"""

import asyncio
import faulthandler
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from tidelog import AsyncClient, Retry
from tidelog.gazette.consumers.consumer import AsyncConsumer
from tidelog.gazette.consumers.failpoints import VARIABLE
from tidelog.gazette.messages import Envelope
from tidelog.gazette.publisher import AsyncPublisher
from tidelog.gazette.stores import AsyncCheckpointStore, AsyncSqliteCheckpointStore, AsyncTidelogCheckpointStore
from tidelog.gazette.stores.postgres import AsyncPostgresCheckpointStore
from tidelog_testing.loads.workload import until
from tidelog_testing.parts.gazette_records import Record, by_number, new_record
from tidelog_testing.servers.processes import PYTHON_PATH

PATIENT: Final = Retry(base_s=0.02, cap_s=0.2)
# Of both databases. An upsert would hide nothing: `times` counts every transaction that handled the number.
CREATE: Final = "CREATE TABLE IF NOT EXISTS counted (number bigint PRIMARY KEY, times integer NOT NULL)"
COUNT: Final = "INSERT INTO counted AS known VALUES ({}, 1) ON CONFLICT (number) DO UPDATE SET times = known.times + 1"
STACKS_END: Final = "end of the stacks"
_END_WITHIN_S: Final = 120.0


def store_of(client: AsyncClient, store: str) -> AsyncCheckpointStore[Any]:
    """Return the store of a name."""
    kind, _, place = store.partition(":")
    if kind == "sqlite":
        return AsyncSqliteCheckpointStore(place, "stage", lock_timeout_s=60)
    if kind == "postgres":
        return AsyncPostgresCheckpointStore(place, "stage")
    return AsyncTidelogCheckpointStore(client, place)


async def count(transaction: Any, number: int, channel: str) -> None:
    """Count a number in the store's open transaction."""
    if isinstance(transaction, sqlite3.Connection):
        transaction.execute(COUNT.format("?"), (number,))
    elif isinstance(transaction, psycopg.AsyncConnection):
        await transaction.execute(COUNT.format("%s").encode(), (number,))
    else:
        await transaction.append(channel, b"%d" % number)


async def prepare(store: str, client: AsyncClient) -> None:
    """Create the place of the counts."""
    kind, _, place = store.partition(":")
    if kind == "sqlite":
        with closing(sqlite3.connect(place)) as connection:
            connection.execute(CREATE)
    elif kind == "postgres":
        with psycopg.connect(place, autocommit=True) as database:
            database.execute("DROP TABLE IF EXISTS counted, tidelog_checkpoints")
            database.execute(CREATE)
    else:
        await client.create_channel(f"{place}.counted")


async def counts(store: str, client: AsyncClient) -> dict[int, int]:
    """Return the counts in a store, by number."""
    kind, _, place = store.partition(":")
    query = "SELECT number, times FROM counted"
    if kind == "sqlite":
        with closing(sqlite3.connect(place, timeout=60)) as connection:
            return dict(connection.execute(query).fetchall())
    if kind == "postgres":
        with psycopg.connect(place) as database:
            return dict(database.execute(query).fetchall())
    found: dict[int, int] = {}
    async for batch in client.scan(f"{place}.counted"):
        for payload in batch.payloads:
            found[int(payload)] = found.get(int(payload), 0) + 1
    return found


def print_tasks() -> None:
    """Write what each task waits for to stderr: its frames, the innermost last."""
    for task in asyncio.all_tasks():
        sys.stderr.write(f"{task.get_name()}:\n")
        waiting: Any = task.get_coro()
        while waiting is not None:
            frame = _first_of(waiting, "cr_frame", "gi_frame", "ag_frame")
            place = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" if frame else repr(waiting)
            sys.stderr.write(f"  {place}\n")
            waiting = _first_of(waiting, "cr_await", "gi_yieldfrom", "ag_await")
    sys.stderr.write(f"{STACKS_END}\n")
    sys.stderr.flush()


def _first_of(value: object, *names: str) -> Any:
    """Return the first attribute that is set; None without one."""
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)


async def run(endpoint: str, store: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Consume until SIGTERM."""
    outputs = list(outputs)
    channel = f"{store.partition(':')[2]}.counted"
    spread = by_number(outputs)

    async def handle(envelope: Envelope, transaction: Any, publisher: AsyncPublisher) -> None:
        assert isinstance(envelope.message, Record)
        number = envelope.message.number
        await count(transaction, number, channel)
        publisher.publish_uncommitted(spread, Record(number))

    async with AsyncClient(endpoint, retry=PATIENT, timeout_s=60, connect_timeout_s=60) as client:
        async with aclosing(store_of(client, store)) as opened:
            consumer = AsyncConsumer(
                client, opened, inputs, new_record, handle, outputs=dict.fromkeys(outputs, Record()), max_messages=50,
                ring_size=64,
            )  # fmt: skip
            running = asyncio.ensure_future(consumer.run())
            stopping: list[asyncio.Future[None]] = []
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGTERM, lambda: stopping.append(asyncio.ensure_future(consumer.stop()))
            )
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print_tasks)
            # Also if the event loop is blocked.
            faulthandler.register(signal.SIGUSR1, chain=True)
            await running


class StageProcess:
    """A stage in a process of its own; ``with`` ends it by SIGKILL."""

    def __init__(
        self,
        errors: Path,
        endpoint: str,
        store: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        failpoint: str = "",
    ) -> None:
        """Start the stage; its stderr is appended to the file ``errors``."""
        self.failpoint = failpoint
        self._errors = errors
        environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": PYTHON_PATH, VARIABLE: failpoint}
        with errors.open("ab") as stream:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "tidelog_testing.loads.gazette_stage", endpoint, store, ",".join(inputs),
                    ",".join(outputs),
                ],
                stdout=subprocess.DEVNULL, stderr=stream, env=environment,
            )  # fmt: skip

    @property
    def code(self) -> int | None:
        """Exit code of the process, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def errors(self) -> str:
        """What this and earlier processes wrote to stderr."""
        return self._errors.read_text(errors="replace")

    async def stacks(self) -> str:
        """Return its stderr with what its threads and tasks wait for, to explain a failure."""
        self._process.send_signal(signal.SIGUSR1)
        with suppress(TimeoutError):
            await until(lambda: STACKS_END in self.errors, 10, "stacks")
        return self.errors

    def wait(self) -> int:
        """Return its exit code once it has ended."""
        return self._process.wait(_END_WITHIN_S)

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone. Idempotent."""
        if self.code is None:
            self._process.kill()
        self.wait()

    def stop(self) -> int:
        """Ask it to commit and end; return its exit code."""
        if self.code is None:
            self._process.terminate()
        return self.wait()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3].split(","), sys.argv[4].split(",")))
