"""Members of a consumer group: under all events one holder at a time, fair shares, and no epoch twice.

The machine is driven as by the server: members join, leave, expire, and release revoked vchannels or not; subscriptions
and time change. A model of every member stores the last notification.

Promises of docs/reference/guarantees.md: G33.
"""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog_server.groups.balance import balanced
from tidelog_server.groups.members import Grants, GroupMembers, Member

LEASE_S = 10.0
RELEASE_WITHIN_S = 3.0
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
            self.group.join(
                Member(
                    name, "", frozenset(channels), LEASE_S, RELEASE_WITHIN_S, self.now_s + LEASE_S,
                    lambda: self.told.add(name),
                )
            )  # fmt: skip
        self.rebalance()

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
            vchannel: [name for name, member in self.group.members.items() if channel in member.channels]
            for vchannel, channel in self.vchannels.items()
        }
        if not revoked:
            assert balanced(held, candidates) == held


TestMembers = Members.TestCase


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, list[str]]]:
    members = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    candidates = {
        f"v{number}": draw(st.lists(st.sampled_from(members), unique=True))
        for number in range(draw(st.integers(0, 20)))
    }
    held = {vchannel: draw(st.sampled_from([*members, "gone"])) for vchannel in candidates if draw(st.booleans())}
    return held, candidates


@given(groups())
def test_everybody_gets_what_they_may_have_and_nobody_two_more_than_they_could_give(
    group: tuple[dict[str, str], dict[str, list[str]]],
) -> None:
    held, candidates = group
    wanted = balanced(held, candidates)
    assert wanted.keys() == {vchannel for vchannel, members in candidates.items() if members}
    loads = {
        member: sum(each == member for each in wanted.values()) for members in candidates.values() for member in members
    }
    for vchannel, member in wanted.items():
        assert member in candidates[vchannel]
        assert all(loads[member] - loads[other] < 2 for other in candidates[vchannel])


@given(groups())
def test_what_is_balanced_stays(group: tuple[dict[str, str], dict[str, list[str]]]) -> None:
    held, candidates = group
    wanted = balanced(held, candidates)
    assert balanced(wanted, candidates) == wanted


@given(st.integers(1, 40), st.integers(1, 8), st.data())
def test_a_new_member_takes_only_its_share(vchannels: int, members: int, data: st.DataObject) -> None:
    names = [f"m{number}" for number in range(members + 1)]
    before = balanced({}, {f"v{number}": names[:-1] for number in range(vchannels)})
    after = balanced(before, {f"v{number}": names for number in range(vchannels)})
    moved = [vchannel for vchannel in after if after[vchannel] != before[vchannel]]
    assert len(moved) == vchannels // (members + 1)
    assert all(after[vchannel] == names[-1] for vchannel in moved)
    # Vchannels that are being revoked already move first.
    leaving = set(data.draw(st.lists(st.sampled_from(sorted(before)), max_size=len(moved), unique=True)))
    again = balanced(before, {f"v{number}": names for number in range(vchannels)}, leaving)
    loads = [sum(each == name for each in again.values()) for name in names]
    assert max(loads) - min(loads) <= 1
