"""Members of a consumer group: under all events one holder at a time, fair shares, and no epoch twice.

The machine is driven as by the server: members join, leave, expire, and release revoked vchannels or not; subscriptions
and time change. A model of every member has what it received: all of its holdings at first, then what has changed.

Promises of docs/reference/guarantees.md: G33.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog_server.groups.balance import moves
from tidelog_server.groups.members import Grants, GroupMembers, Member

LEASE_S = 10.0
RELEASE_WITHIN_S = 3.0


def balanced(
    held: Mapping[str, str], vchannels: Mapping[str, str], members: Mapping[str, Sequence[str]], leaving: Any = ()
) -> dict[str, str]:
    """Return the whole assignment after the moves; holders that may not hold a vchannel do not count."""
    may_hold = {channel: set(names) for channel, names in members.items()}
    kept = {
        vchannel: member
        for vchannel, member in held.items()
        if vchannel in vchannels and member in may_hold[vchannels[vchannel]]
    }
    holders: dict[str, list[str]] = {}
    for vchannel, member in kept.items():
        holders.setdefault(member, []).append(vchannel)
    return kept | moves(holders, vchannels, members, leaving)


member_names = st.sampled_from([f"m{number}" for number in range(5)])
channel_sets = st.sets(st.sampled_from(["a", "b"]), min_size=1)


class Members(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = GroupMembers()
        self.vchannels: dict[str, str] = {}
        self.now_s = 0.0
        self.epoch = 0
        # For each vchannel, its greatest epoch so far, and the holder under it.
        self.epochs: dict[str, tuple[int, str]] = {}
        self.told: set[str] = set()
        # For each member, what it received about its vchannels: the epoch, and whether it is revoked.
        self.models: dict[str, dict[str, tuple[int, bool]]] = {}

    @initialize(a=st.integers(0, 7), b=st.integers(0, 5))
    def subscribe(self, a: int, b: int) -> None:
        self.vchannels = {f"a/{index}": "a" for index in range(a)} | {f"b/{index}": "b" for index in range(b)}

    def grants(self) -> Grants:
        return Grants(self.next_epoch, len)

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def rebalance(self) -> None:
        if self.group.members:
            self.group.rebalance(self.vchannels, self.grants(), self.now_s)

    @rule(name=member_names, channels=channel_sets)
    def join(self, name: str, channels: set[str]) -> None:
        if name not in self.group.members:
            self.models.pop(name, None)
            self.group.join(
                Member(
                    name, "", frozenset(channels), LEASE_S, RELEASE_WITHIN_S, self.now_s + LEASE_S,
                    lambda: self.told.add(name),
                )
            )  # fmt: skip
        self.rebalance()

    @rule(name=member_names, joins_again=st.booleans())
    def read(self, name: str, joins_again: bool) -> None:
        """Tell a member what has changed, or all if it has just joined, or joins again."""
        member = self.group.members.get(name)
        if member is None:
            return
        changes = member.take_all() if joins_again or name not in self.models else member.take_changes()
        model = {} if changes.is_complete else self.models[name]
        for vchannel in changes.lost:
            model.pop(vchannel, None)
        model |= {each.vchannel: (each.epoch, each.release_by_s is not None) for each in changes.held}
        self.models[name] = model
        self.told.discard(name)

    @rule(name=member_names)
    def leave(self, name: str) -> None:
        if (member := self.group.members.get(name)) is not None:
            self.group.remove(member)
            assert member.is_gone
        self.rebalance()

    @rule(name=member_names)
    def release_what_is_asked_for(self, name: str) -> None:
        for holding in list(self.group.holdings.values()):
            if holding.member.member_id == name and holding.release_by_s is not None:
                self.group.release(holding.vchannel, name, holding.epoch)
        self.rebalance()

    @rule(name=member_names, data=st.data())
    def release_under_an_old_epoch(self, name: str, data: st.DataObject) -> None:
        before = dict(self.group.holdings)
        if before:
            vchannel = data.draw(st.sampled_from(sorted(before)))
            self.group.release(vchannel, name, before[vchannel].epoch - 1)
        assert self.group.holdings == before

    @rule(seconds=st.sampled_from([0.5, RELEASE_WITHIN_S, LEASE_S]), alive=st.sets(member_names))
    def time_passes(self, seconds: float, alive: set[str]) -> None:
        self.now_s += seconds
        for name in alive & self.group.members.keys():
            self.group.members[name].expires_s = self.now_s + LEASE_S
        silent = {name for name, member in self.group.members.items() if member.expires_s <= self.now_s}
        assert {member.member_id for member in self.group.expire(self.now_s)} == silent
        assert not any(
            holding.release_by_s is not None and holding.release_by_s <= self.now_s
            for holding in self.group.holdings.values()
        )
        self.rebalance()

    @precondition(lambda self: self.vchannels)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        vchannel = data.draw(st.sampled_from(sorted(self.vchannels)))
        before = self.group.holdings.get(vchannel)
        holder, epoch = (before.member.member_id, before.epoch) if before else ("", 0)
        self.group.restart(vchannel, self.grants())
        if before is not None:
            assert not self.group.holds(vchannel, holder, epoch)
            assert self.group.holds(vchannel, holder, self.group.holdings[vchannel].epoch)

    @rule(channel=st.sampled_from(["a", "b"]))
    def unsubscribe(self, channel: str) -> None:
        self.vchannels = {vchannel: of for vchannel, of in self.vchannels.items() if of != channel}
        self.rebalance()

    @invariant()
    def every_holder_is_a_member_that_wants_the_channel(self) -> None:
        for vchannel, holding in self.group.holdings.items():
            assert self.group.members.get(holding.member.member_id) is holding.member
            assert self.vchannels[vchannel] in holding.member.channels

    @invariant()
    def members_that_were_told_of_all_changes_know_their_holdings(self) -> None:
        for name, model in self.models.items():
            member = self.group.members.get(name)
            if member is not None and name not in self.told:
                assert model == {
                    vchannel: (holding.epoch, holding.release_by_s is not None)
                    for vchannel, holding in self.group.holdings.items()
                    if holding.member is member
                }

    @invariant()
    def those_that_leave_are_those_that_are_revoked(self) -> None:
        assert self.group.leaving == {
            vchannel: holding for vchannel, holding in self.group.holdings.items() if holding.release_by_s is not None
        }

    @invariant()
    def epochs_grow_with_each_holder(self) -> None:
        for vchannel, holding in self.group.holdings.items():
            epoch, member_id = self.epochs.get(vchannel, (0, ""))
            assert holding.epoch > epoch or (holding.epoch, holding.member.member_id) == (epoch, member_id)
            self.epochs[vchannel] = (holding.epoch, holding.member.member_id)

    @invariant()
    def whatever_somebody_wants_is_held(self) -> None:
        for vchannel, channel in self.vchannels.items():
            wanted = any(channel in member.channels for member in self.group.members.values())
            assert (vchannel in self.group.holdings) == wanted

    @invariant()
    def once_all_is_released_the_shares_are_fair(self) -> None:
        held = {vchannel: holding.member.member_id for vchannel, holding in self.group.holdings.items()}
        revoked = {vchannel for vchannel, holding in self.group.holdings.items() if holding.release_by_s is not None}
        candidates = {
            channel: [name for name, member in self.group.members.items() if channel in member.channels]
            for channel in self.vchannels.values()
        }
        if not revoked:
            assert balanced(held, self.vchannels, candidates) == held


TestMembers = Members.TestCase


class Group(NamedTuple):
    """What ``balanced`` takes: the holders, the channel of each vchannel, and the members of each channel."""

    held: dict[str, str]
    vchannels: dict[str, str]
    members: dict[str, list[str]]


@st.composite
def groups(draw: st.DrawFn) -> Group:
    members = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    channels = {
        f"c{number}": draw(st.lists(st.sampled_from(members), unique=True)) for number in range(draw(st.integers(1, 8)))
    }
    vchannels = {f"v{number}": draw(st.sampled_from(sorted(channels))) for number in range(draw(st.integers(0, 20)))}
    held = {vchannel: draw(st.sampled_from([*members, "gone"])) for vchannel in vchannels if draw(st.booleans())}
    return Group(held, vchannels, channels)


def loads_of(wanted: Mapping[str, str], members: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(members, 0) | Counter(wanted.values())


@given(groups(), st.data())
def test_everybody_gets_what_they_may_have_and_nobody_two_more_than_they_could_give(
    group: Group, data: st.DataObject
) -> None:
    leaving = data.draw(st.sets(st.sampled_from(sorted(group.held)))) if group.held else ()
    wanted = balanced(*group, leaving)
    assert wanted.keys() == {vchannel for vchannel, channel in group.vchannels.items() if group.members[channel]}
    loads = loads_of(wanted, {name for names in group.members.values() for name in names})
    for vchannel, member in wanted.items():
        candidates = group.members[group.vchannels[vchannel]]
        assert member in candidates
        assert all(loads[member] - loads[other] < 2 for other in candidates)


@given(groups())
def test_what_is_balanced_stays(group: Group) -> None:
    wanted = balanced(*group)
    assert balanced(wanted, group.vchannels, group.members) == wanted


@given(st.integers(1, 40), st.integers(1, 8), st.data())
def test_members_of_the_same_channels_give_only_what_is_above_their_share(
    vchannels: int, members: int, data: st.DataObject
) -> None:
    names = [f"m{number}" for number in range(members)]
    channels = {f"v{number}": f"c{number % 3}" for number in range(vchannels)}
    held = {vchannel: data.draw(st.sampled_from(names)) for vchannel in channels if data.draw(st.booleans())}
    wanted = balanced(held, channels, {f"c{number}": names for number in range(3)})
    before = sorted(loads_of(held, names).values(), reverse=True)
    # The members with the most keep one more than the others where the vchannels cannot be divided.
    share, ones = divmod(vchannels, members)
    shares = [share + (number < ones) for number in range(members)]
    assert sorted(loads_of(wanted, names).values(), reverse=True) == shares
    assert sum(wanted[vchannel] != member for vchannel, member in held.items()) == sum(
        max(0, load - each) for load, each in zip(before, shares, strict=True)
    )


@given(st.integers(1, 40), st.integers(1, 8), st.data())
def test_a_new_member_takes_only_its_share(vchannels: int, members: int, data: st.DataObject) -> None:
    names = [f"m{number}" for number in range(members + 1)]
    channels = {f"v{number}": "c" for number in range(vchannels)}
    before = balanced({}, channels, {"c": names[:-1]})
    after = balanced(before, channels, {"c": names})
    moved = [vchannel for vchannel in after if after[vchannel] != before[vchannel]]
    assert len(moved) == vchannels // (members + 1)
    assert all(after[vchannel] == names[-1] for vchannel in moved)
    # Vchannels that are being revoked already move first.
    leaving = set(data.draw(st.lists(st.sampled_from(sorted(before)), max_size=len(moved), unique=True)))
    again = balanced(before, channels, {"c": names}, leaving)
    loads = [sum(each == name for each in again.values()) for name in names]
    assert max(loads) - min(loads) <= 1


class CountedNames(Sequence[str]):
    """Names of members that count how often one of them is looked at."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.looks = 0

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: Any) -> Any:
        self.looks += 1
        return self.names[number]

    def __iter__(self) -> Iterator[str]:
        self.looks += len(self.names)
        return iter(self.names)


@pytest.mark.parametrize("holders", [0, 1, 128, 256])
def test_the_work_is_the_sum_of_vchannels_and_members_and_not_their_product(holders: int) -> None:
    names, vchannels = CountedNames([f"m{number:03}" for number in range(256)]), 10_000
    channels = {f"v{number}": "c" for number in range(vchannels)}
    held = {vchannel: names.names[number % holders] for number, vchannel in enumerate(channels)} if holders else {}
    wanted = balanced(held, channels, {"c": names})
    loads = loads_of(wanted, names.names)
    assert (min(loads.values()), max(loads.values())) == (39, 40)
    assert names.looks <= 3 * vchannels + 20 * len(names)


class Sent(NamedTuple):
    """What members received: responses, and the vchannels in them."""

    responses: int
    vchannels: int


class JoiningGroup:
    """A group whose members read what they receive and release at once what is revoked, as on a server."""

    def __init__(self, vchannels: int) -> None:
        self.group = GroupMembers()
        self.vchannels = {f"c{number % 9}/{number}": f"c{number % 9}" for number in range(vchannels)}
        self.stale: dict[str, Member] = {}
        self.rebalances = 0
        epochs = itertools.count(1)
        self.grants = Grants(lambda: next(epochs), len)
        self.channels = frozenset(self.vchannels.values())

    def join(self, name: str) -> Sent:
        """Add a member, and return what was sent until nothing changed any more."""
        member = Member(name, "", self.channels, LEASE_S, RELEASE_WITHIN_S, LEASE_S, lambda: self.change(name))
        self.group.join(member)
        member.take_all()
        responses = vchannels = 0
        self.rebalance()
        while self.stale:
            stale, self.stale = self.stale, {}
            for reader in stale.values():
                changes = reader.take_changes()
                responses, vchannels = responses + 1, vchannels + len(changes.held) + len(changes.lost)
                for each in changes.held:
                    if each.release_by_s is not None:
                        self.group.release(each.vchannel, reader.member_id, each.epoch)
            if self.stale:
                self.rebalance()
        return Sent(responses, vchannels)

    def rebalance(self) -> None:
        self.rebalances += 1
        self.group.rebalance(self.vchannels, self.grants, 0.0)

    def change(self, name: str) -> None:
        self.stale[name] = self.group.members[name]


@pytest.mark.parametrize("vchannels", [576, 2_304])
def test_a_join_costs_what_it_moves_and_two_rebalances(vchannels: int) -> None:
    group = JoiningGroup(vchannels)
    assert group.join("m000") == (1, vchannels)
    for number in range(1, 256):
        rebalances, moved = group.rebalances, vchannels // (number + 1)
        sent = group.join(f"m{number:03}")
        # Each vchannel that moves is revoked, lost and granted; each giver has two responses, the new member one.
        assert sent.vchannels == 3 * moved
        assert sent.responses <= 2 * min(number, moved) + 1
        assert group.rebalances - rebalances == 2
        loads = [len(member.holdings) for member in group.group.members.values()]
        assert sum(loads) == vchannels
        assert max(loads) - min(loads) <= 1
        assert not group.group.leaving
