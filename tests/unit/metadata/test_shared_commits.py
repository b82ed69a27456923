"""Waiting callers share commits, and each gets its outcome. Method: a metadata store that the test blocks."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tidelog_server.core.errors import ShutdownError, StorageFailedError
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import Change, Put
from tidelog_server.runtime.tasks import TaskOwner


class SlowMetadata(MemoryMetadataStore):
    """Commits when the test allows it, and records the number of changes of each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = asyncio.Event()
        self.sizes: list[int] = []
        self.are_before_log: list[bool] = []
        self.failure: Exception | None = None

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        self.sizes.append(len(changes))
        self.are_before_log.append(is_before_log)
        await self.may_commit.wait()
        if self.failure is not None:
            raise self.failure
        return await super().commit(changes, is_before_log=is_before_log)


@pytest.fixture
async def metadata() -> SlowMetadata:
    return SlowMetadata()


@pytest.fixture
async def commits(metadata: SlowMetadata) -> AsyncIterator[SharedCommits]:
    tasks = TaskOwner(lambda name, cause: pytest.fail(f"{name}: {cause}"))
    yield SharedCommits(metadata, tasks)
    await tasks.close()


def puts(*keys: str) -> list[Change]:
    return [Put(key, b"value", expected_revision=0) for key in keys]


async def begun(commits: SharedCommits, *groups: list[Change]) -> list["asyncio.Task[int]"]:
    tasks = [asyncio.create_task(commits.commit(group)) for group in groups]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_what_waits_goes_together(metadata: SlowMetadata, commits: SharedCommits) -> None:
    first = await begun(commits, puts("a"))
    others = await begun(commits, puts("b", "c"), puts("d"))
    metadata.may_commit.set()

    assert await asyncio.gather(*first, *others) == [1, 2, 2]
    assert metadata.sizes == [1, 3]
    assert list(await metadata.list("")) == ["a", "b", "c", "d"]


async def test_one_that_must_be_durable_by_itself_makes_all_so_that_go_with_it(
    metadata: SlowMetadata, commits: SharedCommits
) -> None:
    metadata.may_commit.clear()
    first = asyncio.ensure_future(commits.commit([Put("a", b"", 0)], is_before_log=True))
    while not metadata.sizes:
        await asyncio.sleep(0)
    rest = [
        asyncio.ensure_future(commits.commit([Put(name, b"", 0)], is_before_log=name == "b")) for name in ("b", "c")
    ]
    await asyncio.sleep(0)
    metadata.may_commit.set()
    await asyncio.gather(first, *rest)
    assert (metadata.sizes, metadata.are_before_log) == ([1, 2], [True, False])


async def test_no_commit_is_too_large(metadata: SlowMetadata, commits: SharedCommits) -> None:
    metadata.may_commit.set()
    groups = [puts(*(f"{group}/{number}" for number in range(50))) for group in range(5)]

    await asyncio.gather(*await begun(commits, *groups))

    assert max(metadata.sizes) <= MAX_CHANGES_PER_COMMIT
    assert len(await metadata.list("")) == 250


async def test_a_failure_reaches_those_who_went_together_and_no_others(
    metadata: SlowMetadata, commits: SharedCommits
) -> None:
    metadata.failure = StorageFailedError("the disk is gone")
    failing = await begun(commits, puts("a"))
    metadata.may_commit.set()
    with pytest.raises(StorageFailedError):
        await failing[0]

    metadata.failure = None

    assert await asyncio.gather(*await begun(commits, puts("b"))) == [1]


async def test_who_is_cancelled_is_committed_all_the_same(metadata: SlowMetadata, commits: SharedCommits) -> None:
    (first,) = await begun(commits, puts("a"))
    (second,) = await begun(commits, puts("b"))
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    metadata.may_commit.set()

    await asyncio.gather(*await begun(commits, puts("c")))
    assert list(await metadata.list("")) == ["a", "b", "c"]


async def test_one_before_the_log_goes_alone_and_those_behind_it_together(
    metadata: SlowMetadata, commits: SharedCommits
) -> None:
    alone = asyncio.create_task(commits.commit(puts("a"), is_before_log=True))
    while not metadata.sizes:
        await asyncio.sleep(0)
    others = await begun(commits, puts("b"), puts("c"))
    assert metadata.sizes == [1]
    metadata.may_commit.set()

    assert await asyncio.gather(alone, *others) == [1, 2, 2]
    assert metadata.sizes == [1, 2]


async def test_nothing_is_begun_when_the_tasks_have_ended() -> None:
    tasks = TaskOwner(lambda name, cause: pytest.fail(f"{name}: {cause}"))
    commits = SharedCommits(MemoryMetadataStore(), tasks)
    await tasks.close()
    with pytest.raises(ShutdownError):
        await commits.commit(puts("a"))
