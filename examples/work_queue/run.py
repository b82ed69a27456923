"""The example from beginning to end."""

import asyncio
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from examples.flights.flights import read_flights
from examples.flights.server import MortalServer
from examples.work_queue.jobs import DELIVERY, JOBS, LETTERS, RESULTS, Claim, claims_of
from tidelog import AsyncClient
from tidelog_cli.exit_codes import CommandError

WORKERS: Final = 3
COMPLETE_WITHIN_S: Final = 120.0
SEND_AT_ONCE: Final = 100
LOOK_EVERY_S: Final = 0.1


def run_example(*, flights: int, kills: int) -> None:
    """Send claims, kill workers at random, and compare the results with the claims.

    Args:
        flights: Number of flights of which the late ones become claims.
        kills: How often a worker is killed.

    Raises:
        CommandError: A claim has no result or several, or the workers do not end.
    """
    claims = claims_of(read_flights(flights))
    with tempfile.TemporaryDirectory(prefix="tidelog-example-") as folder:
        server = MortalServer(Path(folder) / "data", {})
        try:
            asyncio.run(run(server.grpc, claims, kills))
        finally:
            server.stop()


async def run(endpoint: str, claims: Sequence[Claim], kills: int) -> None:
    """Do all claims while workers are killed, and compare."""
    async with AsyncClient(endpoint) as client:
        await client.create_channel(RESULTS)
        await client.mailboxes.create(JOBS)
        await client.mailboxes.create(LETTERS)
        jobs = client.mailbox(JOBS)
        bodies = [claim.encode() for claim in claims]
        for begin in range(0, len(bodies), SEND_AT_ONCE):
            await jobs.send_many(bodies[begin : begin + SEND_AT_ONCE])
        await do_all(client, endpoint, len(claims), kills)
        await compare(client, claims)


async def do_all(client: AsyncClient, endpoint: str, total: int, kills: int) -> None:
    """Run workers until no job is left; kill and replace one of them from time to time."""
    workers = [start_worker(endpoint) for _ in range(WORKERS)]
    try:
        async with asyncio.timeout(COMPLETE_WITHIN_S):
            with Progress(console=Console(stderr=True), transient=True) as progress:
                bar = progress.add_task("claims", total=total)
                for _ in range(kills):
                    await asyncio.sleep(random.uniform(0.3, 0.9))
                    victim = random.randrange(WORKERS)
                    workers[victim].kill()
                    workers[victim].wait()
                    workers[victim] = start_worker(endpoint)
                    progress.update(bar, completed=total - await left(client))
                while count := await left(client):
                    progress.update(bar, completed=total - count)
                    await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise CommandError(f"the workers did not finish within {COMPLETE_WITHIN_S:.0f} s") from None
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


async def left(client: AsyncClient) -> int:
    """Return the number of jobs that are not done."""
    counts = await client.mailbox(JOBS).counts()
    return counts.available + counts.delayed + counts.leased


def start_worker(endpoint: str) -> "subprocess.Popen[bytes]":
    """Start a worker."""
    return subprocess.Popen([sys.executable, "-m", "examples.work_queue.worker", endpoint])


async def compare(client: AsyncClient, claims: Sequence[Claim]) -> None:
    """Check that each claim has one result, and each paid one a letter; print the result."""
    results: Counter[Claim] = Counter()
    again = 0
    async for batch in client.scan(f"{RESULTS}/0"):
        results.update(map(Claim.decode, batch.payloads))
        again += sum(properties[DELIVERY] != "1" for properties in batch.properties)
    letters = (await client.mailbox(LETTERS).counts()).available
    if results != Counter(claims):
        raise CommandError(f"there are {results.total()} results of {len(results)} claims, expected {len(claims)}")
    paid = sum(claim.is_paid for claim in claims)
    if letters != paid:
        raise CommandError(f"there are {letters} letters, expected {paid}")
    Console().print(
        f"{len(claims):,} claims were done once each, and {letters:,} letters sent; {again:,} claims were delivered "
        "again because their worker had died",
        soft_wrap=True,
    )
