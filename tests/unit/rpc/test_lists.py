"""Lists and watches take bounded work, whatever tenants have, and the work of a caller is its own.

A caller's list looks at what its grants cover, and at nothing of others; a term of a selector is a look-up. Long lists
are in bounded steps with other work between them, end early with a token, and are charged. A change wakes thousands of
watches, each of which looks at the change alone.

Method: Python function calls are counted, so that a busy machine changes nothing. Journals are put into the catalog of
a node in memory.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest

from tidelog.v1 import channel_service_pb2 as channels_pb
from tidelog.v1 import cluster_service_pb2 as cluster_pb
from tidelog.v1 import group_service_pb2 as groups_pb
from tidelog.v1 import journal_service_pb2 as pb
from tidelog_server.channels.catalog import ChannelRecord, Owner
from tidelog_server.core.errors import InvalidRequestError, RateLimitRejectedError
from tidelog_server.core.limits import LIST_STEP_LOOKS, MAX_CHANNELS_PER_REQUEST, MAX_PAGE_LOOKS
from tidelog_server.core.ticks import Tick
from tidelog_server.groups.catalog import GroupRecord
from tidelog_server.journals.catalog import Journal
from tidelog_server.log import watch_memory
from tidelog_server.log.scan.follow_turns import MAX_FOLLOW_TURNS_PER_TICK
from tidelog_server.log.scan.positions import StartAll
from tidelog_server.log.watch_memory import WATCHED_NAME_BYTES
from tidelog_server.rpc.lists.looks import LOOKS_PER_COST
from tidelog_server.rpc.lists.watches import MAX_HEARTBEAT_INTERVAL_MS, MIN_HEARTBEAT_INTERVAL_MS, WATCHED_NAMES_STEP
from tidelog_server.rpc.services.channels import ChannelService
from tidelog_server.rpc.services.cluster import ClusterService
from tidelog_server.rpc.services.groups import GroupService
from tidelog_server.rpc.services.journals import MAX_SELECTOR_TERMS, JournalService
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security.access import set_access
from tidelog_server.security.permissions import ROWS
from tidelog_server.security.quotas import Quotas, QuotaTable
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.work import CallContext, Counted, access_of

WEAK = "read:zzz"
OWN = "journal.list:mine/*"
JOURNALS = 300
LABELS = tuple((f"label-{number:03}", str(number)) for number in range(100))
TERMS = [pb.JournalLabelTerm(name=f"other-{number}", value="x") for number in range(MAX_SELECTOR_TERMS)]
ALL_TERMS = pb.JournalSelector(exclude=TERMS)
# Function calls of a list that finds nothing, and those of one look, both generous.
OF_A_CALL = 600
OF_A_LOOK = 16
# While the event loop is on time, a caller gets several turns at once.
OF_A_STEP = OF_A_CALL + OF_A_LOOK * LIST_STEP_LOOKS * (MAX_FOLLOW_TURNS_PER_TICK + 2)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with running_node(MemoryLogStore()) as node:
        yield node


def learn(node: Node, prefix: str, count: int = JOURNALS, labels: tuple[tuple[str, str], ...] = LABELS) -> list[str]:
    """Put journals into the catalog; return their names."""
    names = [f"{prefix}/{number:05}" for number in range(count)]
    for number, name in enumerate(names):
        node.journals.catalog.learn(Journal(name, number, labels, 1))
    return names


def context() -> Any:
    return CallContext()


def listing(node: Node, request: pb.ListJournalsRequest) -> Counted[pb.ListJournalsResponse]:
    async def listed() -> pb.ListJournalsResponse:
        service = JournalService(node.journals, node.log)
        return pb.ListJournalsResponse.FromString(await service.list_journals(request, context()))

    return Counted(listed())


async def test_a_list_takes_no_work_for_journals_of_others(node: Node) -> None:
    learn(node, "others")
    set_access(access_of(WEAK))
    call = listing(node, pb.ListJournalsRequest(selector=ALL_TERMS, page_size=1))

    assert not (await call).journals
    assert call.calls < OF_A_CALL + 8 * MAX_SELECTOR_TERMS


async def test_a_term_is_a_look_up_whatever_the_number_of_labels(node: Node) -> None:
    learn(node, "others")
    name = learn(node, "mine", 1, tuple((f"label-{number:05}", "") for number in range(1_500)))
    set_access(access_of(OWN))
    call = listing(node, pb.ListJournalsRequest(selector=ALL_TERMS))

    assert [each.name for each in (await call).journals] == name
    assert call.calls < OF_A_CALL + OF_A_LOOK * (MAX_SELECTOR_TERMS + 1_500)


async def test_a_long_list_is_in_bounded_steps_and_ends_early_with_a_token(node: Node) -> None:
    """The client asks for the next page, and gets every journal once."""
    names = learn(node, "mine", 600, ())
    set_access(access_of(OWN))
    request, found, pages = pb.ListJournalsRequest(selector=ALL_TERMS), list[str](), 0
    while True:
        call = listing(node, request)
        page = await call
        found += [each.name for each in page.journals]
        pages += 1
        assert call.longest < OF_A_STEP
        assert call.calls < OF_A_CALL + OF_A_LOOK * (MAX_PAGE_LOOKS + MAX_SELECTOR_TERMS)
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == names
    assert pages == 600 * (MAX_SELECTOR_TERMS + 4) // MAX_PAGE_LOOKS + 1


async def test_the_work_of_a_list_is_charged_to_its_caller(node: Node) -> None:
    learn(node, "mine", 200, ())
    clock = SystemClock()
    quotas = QuotaTable(Quotas(shared_calls_per_s=100), clock, Metrics())
    other, mine = quotas.of("token:other"), access_of(OWN, quotas=quotas)
    set_access(mine)
    await listing(node, pb.ListJournalsRequest(selector=ALL_TERMS))
    looks = 200 * MAX_SELECTOR_TERMS

    await other.turn(1, 0)
    # The cost of the list alone makes the next call of its caller wait; a call costs 1.
    assert looks // LOOKS_PER_COST > 50
    wait_s = quotas._turns.wait_s("token:one", 1, clock.monotonic_s())
    assert wait_s is not None
    assert wait_s > 0
    assert quotas._turns.wait_s("token:other", 1, clock.monotonic_s()) == 0


async def watched(node: Node, count: int, *grants: str) -> tuple[list[asyncio.Task[None]], list[CallContext]]:
    """Begin watches of all journals, and wait until each has its snapshot."""
    service, contexts = JournalService(node.journals, node.log), [CallContext() for _ in range(count)]
    set_access(access_of(*grants))
    tasks = [
        asyncio.create_task(service.watch_journals(pb.WatchJournalsRequest(), cast("Any", each))) for each in contexts
    ]
    while not all(each.written for each in contexts):
        await asyncio.sleep(0.001)
    return tasks, contexts


async def test_a_change_takes_work_for_the_change_alone(node: Node) -> None:
    names = learn(node, "mine", 2_000, ())
    set_access(access_of(OWN))
    service, one = JournalService(node.journals, node.log), CallContext()
    call = Counted(service.watch_journals(pb.WatchJournalsRequest(), cast("Any", one)))

    async def watch() -> None:
        await call

    task = asyncio.create_task(watch())
    while len(one.written) < 2:
        await asyncio.sleep(0.001)
    before = len(call.steps)
    assert call.longest < OF_A_STEP
    node.journals.catalog.forget(names[7])
    node.journals.on_changed()
    while len(one.written) < 3:
        await asyncio.sleep(0.001)
    change = pb.WatchJournalsResponse.FromString(one.written[-1])
    assert (list(change.gone), list(change.journals), change.is_complete) == ([names[7]], [], True)
    assert sum(call.steps[before:]) < OF_A_CALL
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_thousands_of_watches_hold_nothing_of_others(node: Node) -> None:
    """A watch of a caller that may see nothing remembers nothing, and a change sends it nothing."""
    learn(node, "others", 2_000, ())
    tasks, contexts = await watched(node, 500, WEAK)
    node.journals.catalog.learn(Journal("others/more", 9_999, (), 2))
    node.journals.on_changed()
    await asyncio.sleep(0.3)
    assert {len(each.written) for each in contexts} == {1}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_watch_reports_what_new_permissions_show_at_once(node: Node) -> None:
    learn(node, "mine", 3, ())
    learn(node, "others", 3, ())
    access = access_of(OWN)
    set_access(access)
    service, one = JournalService(node.journals, node.log), CallContext()
    task = asyncio.create_task(service.watch_journals(pb.WatchJournalsRequest(), cast("Any", one)))
    while not one.written:
        await asyncio.sleep(0.001)
    access.renewed(access_of("journal.list:others/*").principal)
    while len(one.written) < 2:
        await asyncio.sleep(0.001)
    change = pb.WatchJournalsResponse.FromString(one.written[-1])
    assert [each.name for each in change.journals] == [f"others/{number:05}" for number in range(3)]
    assert sorted(change.gone) == [f"mine/{number:05}" for number in range(3)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def watches_of(node: Node, *grants: str) -> int:
    """Begin watches of a caller until one is refused, and return how many have their snapshot. All are ended."""
    service, tasks, begun = JournalService(node.journals, node.log), list[asyncio.Task[None]](), 0
    set_access(access_of(*grants))
    while True:
        one = CallContext()
        task = asyncio.create_task(service.watch_journals(pb.WatchJournalsRequest(), cast("Any", one)))
        tasks.append(task)
        while not (one.written or task.done()):
            await asyncio.sleep(0.001)
        if task.done():
            with pytest.raises(RateLimitRejectedError, match="names that its watches have sent"):
                task.result()
            break
        begun += 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert node.log.watch_memory.used_bytes == 0
    return begun


async def test_the_names_that_watches_remember_have_a_bound(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant has half of the names, and all of them again once its watches are closed, or the names are gone."""
    monkeypatch.setattr(watch_memory, "_MAX_NAMES", 16 * WATCHED_NAMES_STEP)
    names = learn(node, "mine", WATCHED_NAMES_STEP + 1, ())
    # Each watch counts two steps.
    assert await watches_of(node, OWN) == 4
    assert await watches_of(node, OWN) == 4

    tasks, _ = await watched(node, 4, OWN)
    assert node.log.watch_memory.used_bytes == 8 * WATCHED_NAMES_STEP * WATCHED_NAME_BYTES
    for name in names:
        node.journals.catalog.forget(name)
    node.journals.on_changed()
    while node.log.watch_memory.used_bytes > 4 * WATCHED_NAMES_STEP * WATCHED_NAME_BYTES:
        await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert node.log.watch_memory.used_bytes == 0


async def test_a_watch_that_has_no_room_for_a_new_name_ends(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_memory, "_MAX_NAMES", 2 * WATCHED_NAMES_STEP)
    learn(node, "mine", WATCHED_NAMES_STEP, ())
    tasks, contexts = await watched(node, 1, OWN)
    # A change needs no room.
    node.journals.catalog.learn(Journal("mine/00000", 9_998, (), 2))
    node.journals.on_changed()
    while len(contexts[0].written) < 2:
        await asyncio.sleep(0.001)
    assert node.log.watch_memory.used_bytes == WATCHED_NAMES_STEP * WATCHED_NAME_BYTES
    node.journals.catalog.learn(Journal("mine/more", 9_999, (), 2))
    node.journals.on_changed()
    with pytest.raises(RateLimitRejectedError, match=f"this principal uses {WATCHED_NAMES_STEP} names"):
        await tasks[0]
    assert node.log.watch_memory.used_bytes == 0


async def no_metrics() -> bytes:
    """Return the metrics of a node that is asked for none."""
    return b""


def learn_channels(node: Node, count: int) -> None:
    catalog = node.directory.ownership.catalog
    for number in range(count):
        name = f"others.{number:05}"
        catalog.learn(ChannelRecord(name, (10_000 + number,), Owner(), Tick(1), node_id="another", revision=1))
        node.directory.names.add(name)


async def test_a_watch_of_owners_takes_no_work_for_channels_of_others(node: Node) -> None:
    learn_channels(node, 2_000)
    set_access(access_of(WEAK))
    service, one = ClusterService(None, node.directory.ownership, node.lifecycle, node.log, no_metrics), CallContext()
    call = Counted(service.watch_owners(cluster_pb.WatchOwnersRequest(), cast("Any", one)))

    async def watch() -> None:
        await call

    task = asyncio.create_task(watch())
    while not one.written:
        await asyncio.sleep(0.001)
    learn_channels(node, 0)
    node.directory.ownership.catalog.forget("others.00001")
    await asyncio.sleep(0.5)
    assert len(one.written) == 1
    assert call.calls < OF_A_CALL
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


Watcher = Callable[[Node, int, CallContext], Coroutine[Any, Any, None]]


def watch_journals(node: Node, interval_ms: int, one: CallContext) -> Coroutine[Any, Any, None]:
    request = pb.WatchJournalsRequest(heartbeat_interval_ms=interval_ms)
    return JournalService(node.journals, node.log).watch_journals(request, cast("Any", one))


def watch_owners(node: Node, interval_ms: int, one: CallContext) -> Coroutine[Any, Any, None]:
    request = cluster_pb.WatchOwnersRequest(heartbeat_interval_ms=interval_ms)
    service = ClusterService(None, node.directory.ownership, node.lifecycle, node.log, no_metrics)
    return service.watch_owners(request, cast("Any", one))


WATCHES: list[tuple[Watcher, type[Any]]] = [
    (watch_journals, pb.WatchJournalsResponse),
    (watch_owners, cluster_pb.WatchOwnersResponse),
]


@pytest.mark.parametrize(("watch", "answer"), WATCHES)
async def test_a_quiet_watch_sends_heartbeats_if_it_is_asked_for_them(
    node: Node, watch: Watcher, answer: type[Any]
) -> None:
    """Those of a caller that may see nothing do not wait for changes that are not its own."""
    set_access(access_of(WEAK))
    asked, other = CallContext(), CallContext()
    tasks = [
        asyncio.create_task(watch(node, MIN_HEARTBEAT_INTERVAL_MS, asked)), asyncio.create_task(watch(node, 0, other))
    ]  # fmt: skip
    begin_s = time.monotonic()
    while len(asked.written) < 4:
        node.journals.on_changed()
        await asyncio.sleep(0.001)
    assert time.monotonic() - begin_s >= 3 * MIN_HEARTBEAT_INTERVAL_MS / 1_000
    first, *heartbeats = [answer.FromString(each) for each in asked.written[:4]]
    assert first == answer(is_complete=True, heartbeat_interval_ms=MIN_HEARTBEAT_INTERVAL_MS)
    assert heartbeats == [answer(heartbeat_interval_ms=MIN_HEARTBEAT_INTERVAL_MS)] * 3
    assert [answer.FromString(each) for each in other.written] == [answer(is_complete=True)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(("watch", "answer"), WATCHES)
@pytest.mark.parametrize("interval_ms", [MIN_HEARTBEAT_INTERVAL_MS - 1, MAX_HEARTBEAT_INTERVAL_MS + 1])
async def test_other_intervals_of_heartbeats_are_refused(
    node: Node, watch: Watcher, answer: type[Any], interval_ms: int
) -> None:
    with pytest.raises(InvalidRequestError, match=f"heartbeat_interval_ms is {interval_ms}, expected 100 to 60000"):
        await watch(node, interval_ms, CallContext())


async def test_lists_of_channels_and_groups_take_no_work_for_those_of_others(node: Node) -> None:
    learn_channels(node, 2_000)
    catalog = node.groups.catalog
    for number in range(2_000):
        catalog.records[f"others.{number:05}"] = GroupRecord(f"others.{number:05}", Tick(1), StartAll())
        catalog.names.add(f"others.{number:05}")
    set_access(access_of(WEAK))
    channels = ChannelService(node.lifecycle, node.directory, node.log)
    listed = Counted(channels.list_channels(channels_pb.ListChannelsRequest(include_system=True), context()))
    assert not (await listed).channels
    assert listed.calls < OF_A_CALL
    groups = GroupService(node.groups, node.log)
    found = Counted(groups.list_groups(groups_pb.ListGroupsRequest(), context()))
    assert not (await found).groups
    assert found.calls < OF_A_CALL


@pytest.mark.parametrize(
    ("method", "request_type", "grant"),
    [
        ("ChannelService/DescribeChannels", channels_pb.DescribeChannelsRequest, "read:orders"),
        ("ClusterService/LocateChannels", cluster_pb.LocateChannelsRequest, "read:orders"),
        ("ChannelService/DestroyChannels", channels_pb.DestroyChannelsRequest, "channel.delete:orders"),
    ],
)
async def test_a_request_with_more_names_than_are_allowed_is_refused_before_they_are_checked(
    method: str, request_type: Any, grant: str
) -> None:
    """A caller may repeat a name that it may use, so the first denial does not end the check."""
    request, access = request_type(names=["orders"] * 50_000), access_of(grant)

    async def check() -> None:
        ROWS[f"tidelog.v1.{method}"].check(access, request)

    call = Counted(check())
    with pytest.raises(InvalidRequestError, match="names: use several requests"):
        await call
    assert call.calls < OF_A_CALL + 2 * 16_384
    ROWS[f"tidelog.v1.{method}"].check(access, request_type(names=["orders"] * MAX_CHANNELS_PER_REQUEST))
