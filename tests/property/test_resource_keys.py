"""Resource keys exclude each other and are granted in order, and no owner waits without a conflict.

Method: random requests and releases, against a model that checks all holders and all waiters each time.

Promises of docs/reference/guarantees.md: G28.
"""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog_server.broadcast.keys import ResourceKeys
from tidelog_server.core.broadcasts import KeyName, ResourceKey

Keys = Sequence[ResourceKey]

key_sets = st.dictionaries(st.sampled_from("abcd"), st.booleans(), max_size=3).map(
    lambda modes: tuple(ResourceKey(KeyName("d", name), is_shared) for name, is_shared in sorted(modes.items()))
)


def exclude(one: Keys, other: Keys) -> bool:
    """Return True if two sets of keys cannot be held at the same time."""
    shared = {key.name: key.is_shared for key in one}
    return any(key.name in shared and not (key.is_shared and shared[key.name]) for key in other)


class KeysModel(RuleBasedStateMachine):
    """ResourceKeys against two dictionaries, of holders and of waiters in order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = ResourceKeys()
        self.held: dict[int, Keys] = {}
        self.waiting: dict[int, Keys] = {}
        self.owners = 0

    def grant(self) -> list[int]:
        """Grant keys to waiters, from the first to the last; return the new holders."""
        granted = []
        earlier: list[Keys] = []
        for owner, wanted in list(self.waiting.items()):
            if any(exclude(wanted, other) for other in (*self.held.values(), *earlier)):
                earlier.append(wanted)
            else:
                self.held[owner] = self.waiting.pop(owner)
                granted.append(owner)
        return granted

    @rule(wanted=key_sets)
    def try_to_acquire(self, wanted: Keys) -> None:
        self.owners += 1
        conflict = self.keys.try_acquire(self.owners, wanted)
        holders = [owner for owner, held in self.held.items() if exclude(wanted, held)]
        if holders:
            assert conflict is not None
            assert conflict.owner in holders
            assert conflict.key in wanted
        else:
            assert conflict is None
            self.held[self.owners] = wanted

    @rule(wanted=key_sets)
    def wait(self, wanted: Keys) -> None:
        self.owners += 1
        has_keys = self.keys.request(self.owners, wanted)
        self.waiting[self.owners] = wanted
        assert has_keys == (self.grant() == [self.owners])
        if not has_keys:
            owner = self.keys.conflict(self.owners).owner
            assert exclude(wanted, self.held.get(owner) or self.waiting[owner])

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from([0, *self.held, *self.waiting]))
        self.held.pop(owner, None)
        self.waiting.pop(owner, None)
        assert self.keys.release(owner) == self.grant()

    @invariant()
    def holders_are_those_of_the_model(self) -> None:
        assert all(self.keys.holds(owner) for owner in self.held)
        assert not any(self.keys.holds(owner) for owner in self.waiting)
        assert self.keys.waiters == len(self.waiting)
        for name in "abcd":
            holders = [owner for owner, held in self.held.items() if any(key.name.key == name for key in held)]
            assert self.keys.holders(KeyName("d", name)) == holders

    @invariant()
    def holders_do_not_exclude_each_other(self) -> None:
        held = list(self.held.values())
        assert not any(exclude(one, other) for number, one in enumerate(held) for other in held[:number])


TestKeysModel = KeysModel.TestCase


def test_a_release_leaves_nothing_behind() -> None:
    keys = ResourceKeys()
    wanted = [ResourceKey(KeyName("d", "k"), False)]
    keys.try_acquire(1, wanted)
    assert not keys.request(2, wanted)
    assert keys.release(2) == []
    assert keys.release(1) == []
    assert (keys._holders, keys._queues, keys._held, keys._waiting) == ({}, {}, {}, {})
