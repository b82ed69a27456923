"""Processes that choose nodes by themselves: a model of many processes, nodes that cannot be opened, and deaths.

Each process decides with ``choose`` from what it sees. Time is simulated: it moves on to the next time at which a
process has something to do.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.cluster.choice import FOLLOWERS_FIRST_S, NEVER, Choice, Seen, choose
from tidelog_server.cluster.standby import NODE_LEFT_S

_LEASE_S = 10.0
_MAX_FOLLOWS = 2


@dataclass
class Process:
    """A process that runs.

    Attributes:
        serves: The node that it serves; None for a standby.
        follows: Nodes whose logs it applies.
        left_until_s: See ``Seen``.
    """

    name: str
    serves: str | None = None
    follows: frozenset[str] = frozenset()
    left_until_s: dict[str, float] = field(default_factory=dict)


class Model:
    """Processes and nodes.

    Attributes:
        broken: For each node, the processes that cannot open it.
        taken: Each time that a node was taken: the time, the process, and the node.
    """

    def __init__(self, nodes: int) -> None:
        self.now_s = 100.0
        self.nodes = {f"n{number}" for number in range(nodes)}
        self.free_since_s = dict.fromkeys(self.nodes, self.now_s)
        self.processes: dict[str, Process] = {}
        self.broken: dict[str, set[str]] = {}
        self.taken: list[tuple[float, str, str]] = []
        self.refused: list[tuple[float, str, str]] = []
        # When the registrations of dead processes end.
        self.ends_s: list[tuple[float, str]] = []

    def start(self, name: str) -> None:
        self.processes[name] = Process(name)

    def kill(self, name: str, *, is_graceful: bool) -> None:
        process = self.processes.pop(name)
        if process.serves is not None:
            self.ends_s.append((self.now_s + (0.0 if is_graceful else _LEASE_S), process.serves))

    def standbys(self) -> list[Process]:
        return [process for process in self.processes.values() if process.serves is None]

    def choice(self, process: Process) -> Choice:
        return choose(
            Seen(
                process.name, self.nodes, self.free_since_s, {each.name: each.follows for each in self.standbys()},
                process.follows, process.left_until_s, _MAX_FOLLOWS, self.now_s,
            )
        )  # fmt: skip

    def settle(self) -> float:
        """Let all processes act until none has anything to do now; return when one has."""
        for _ in range(1_000):
            for end_s, node in [each for each in self.ends_s if each[0] <= self.now_s]:
                self.ends_s.remove((end_s, node))
                self.free_since_s[node] = self.now_s
            acted = [self._act(process) for process in self.standbys()]
            if not any(acted):
                again_s = [self.choice(process).look_again_s for process in self.standbys()]
                return min([*again_s, *(end_s for end_s, _ in self.ends_s)], default=NEVER)
        raise AssertionError("the processes never come to rest")

    def run_until(self, end_s: float) -> None:
        while (next_s := self.settle()) <= end_s:
            assert self.now_s < next_s
            self.now_s = next_s
        self.now_s = end_s

    def _act(self, process: Process) -> bool:
        choice = self.choice(process)
        assert len(choice.follow) <= _MAX_FOLLOWS
        changed = choice.follow != process.follows
        process.follows = choice.follow
        if choice.take is None:
            return changed
        assert choice.take in self.free_since_s
        assert process.left_until_s.get(choice.take, 0.0) <= self.now_s
        if process.name in self.broken.get(choice.take, ()):
            self.refused.append((self.now_s, process.name, choice.take))
            process.left_until_s[choice.take] = self.now_s + NODE_LEFT_S
            return True
        assert process.serves is None
        process.serves, process.follows = choice.take, frozenset()
        del self.free_since_s[choice.take]
        self.taken.append((self.now_s, process.name, choice.take))
        return True

    def counts(self) -> dict[str, int]:
        return {node: sum(node in each.follows for each in self.standbys()) for node in self.nodes}


events = st.lists(
    st.tuples(st.sampled_from(["start", "kill", "stop"]), st.integers(0, 9), st.floats(0.0, 40.0)), max_size=12
)


@given(nodes=st.integers(1, 5), processes=st.integers(1, 9), events=events)
def test_nodes_are_taken_and_followers_are_spread(
    nodes: int, processes: int, events: list[tuple[str, int, float]]
) -> None:
    model = Model(nodes)
    for number in range(processes):
        model.start(f"p{number}")
    for kind, number, pause_s in events:
        name = f"p{number}"
        if kind == "start" and name not in model.processes:
            model.start(name)
        elif kind != "start" and name in model.processes:
            model.kill(name, is_graceful=kind == "stop")
        model.run_until(model.now_s + pause_s)
    model.run_until(model.now_s + _LEASE_S + FOLLOWERS_FIRST_S)
    served = [each.serves for each in model.processes.values() if each.serves is not None]
    assert len(served) == len(set(served)) == min(nodes, len(model.processes))
    counts = model.counts().values()
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == len(model.standbys()) * min(_MAX_FOLLOWS, nodes)


@given(nodes=st.integers(1, 4), spare=st.integers(1, 4), graceful=st.booleans())
def test_a_follower_takes_a_node_at_once_when_its_registration_ends(nodes: int, spare: int, graceful: bool) -> None:
    model = Model(nodes)
    for number in range(nodes + spare):
        model.start(f"p{number}")
    model.run_until(200.0)
    owner = next(each for each in model.processes.values() if each.serves is not None)
    assert owner.serves is not None
    model.kill(owner.name, is_graceful=graceful)
    model.run_until(300.0)
    at_s, name, node = model.taken[-1]
    assert node == owner.serves
    ended_s = 200.0 if graceful else 200.0 + _LEASE_S
    # Without a follower, there is no reason to wait.
    assert (at_s, name != owner.name) == (ended_s, True)


@given(st.data())
def test_a_node_that_cannot_be_opened_is_left_and_tried_again(data: st.DataObject) -> None:
    nodes, processes = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    model = Model(nodes)
    for number in range(processes):
        model.start(f"p{number}")
    names = sorted(model.processes)
    model.broken = {node: set(data.draw(st.sets(st.sampled_from(names)))) for node in sorted(model.nodes)}
    model.run_until(model.now_s + 4 * NODE_LEFT_S)
    for name in names:
        for node in model.nodes:
            times = [at_s for at_s, *which in model.refused if which == [name, node]]
            assert all(later - earlier >= NODE_LEFT_S for earlier, later in pairwise(times))
    # A node that a standby could open has a process.
    for node in model.free_since_s:
        assert all(each.name in model.broken[node] for each in model.standbys())
    model.broken.clear()
    model.run_until(model.now_s + NODE_LEFT_S + FOLLOWERS_FIRST_S)
    assert len(model.free_since_s) == max(0, nodes - processes)


def test_a_process_that_does_not_have_the_log_waits_for_those_that_apply_it() -> None:
    seen = Seen("p1", {"n1"}, {"n1": 50.0}, {"p1": {"n1"}, "p2": {"n1"}}, frozenset(), {}, _MAX_FOLLOWS, 50.5)
    assert choose(seen) == Choice(None, frozenset({"n1"}), 50.0 + FOLLOWERS_FIRST_S)
    assert choose(seen._replace(caught_up=frozenset({"n1"}))).take == "n1"
    assert choose(seen._replace(now_s=50.0 + FOLLOWERS_FIRST_S)).take == "n1"
    assert choose(seen._replace(standbys={"p1": {"n1"}})).take == "n1"
