"""Which node a process without one takes, and whose logs it applies until then. Pure: no I/O, no clock.

All processes decide by themselves, from what they see of the others; the registration admits one process to a node, and
the rules of the log make a mistake harmless. So this decides only how soon a node is taken, and how work is spread:

- A node without a process is taken at once by a process that has its log, by others ``FOLLOWERS_FIRST_S`` later. If no
  other process applies its log, no time is lost with waiting.
- Each process applies the logs of as many nodes as it may, those with the fewest followers. If a node has two more than
  another one, one process changes from it to the other: always the first of those that can, so that not all do.
- A node that this process could not open is left to others for a while.
"""

import math
from collections.abc import Mapping, Set
from hashlib import blake2b
from typing import Final, NamedTuple

# A node without a process is left to those that have its log for so long, before others take it.
FOLLOWERS_FIRST_S: Final = 2.0

NEVER: Final = math.inf


class Seen(NamedTuple):
    """What a process without a node sees. Times are seconds of one monotonic clock.

    Attributes:
        process: Id of this process.
        nodes: The nodes that it may serve.
        free_since_s: Of those, the nodes without a process: since when.
        standbys: The nodes whose logs each process without a node applies, this one included.
        caught_up: Nodes whose logs this process has applied up to their end.
        left_until_s: Nodes that this process could not open, and until when it leaves them to others.
        max_follows: Greatest number of nodes whose logs it applies.
        now_s: The time.
    """

    process: str
    nodes: Set[str]
    free_since_s: Mapping[str, float]
    standbys: Mapping[str, Set[str]]
    caught_up: Set[str]
    left_until_s: Mapping[str, float]
    max_follows: int
    now_s: float


class Choice(NamedTuple):
    """What the process does now.

    Attributes:
        take: The node to register for; None for none.
        follow: The nodes whose logs to apply.
        look_again_s: When to choose again if nothing is seen to change; NEVER without a reason to.
    """

    take: str | None
    follow: frozenset[str]
    look_again_s: float


def choose(seen: Seen) -> Choice:
    """Return what the process that sees this does now."""
    left = {node for node, until_s in seen.left_until_s.items() if seen.now_s < until_s}
    due_s = {node: _due_s(seen, node) for node in seen.free_since_s if node in seen.nodes and node not in left}
    due = [node for node, at_s in due_s.items() if at_s <= seen.now_s]
    take = min(due, key=lambda node: (node not in seen.caught_up, _rank(seen.process, node)), default=None)
    later = [at_s for at_s in due_s.values() if seen.now_s < at_s]
    ends = [seen.left_until_s[node] for node in left & seen.nodes]
    return Choice(take, _follow(seen, seen.nodes - left), min([*later, *ends], default=NEVER))


def _due_s(seen: Seen, node: str) -> float:
    """Return when this process may take a node without a process."""
    since_s = seen.free_since_s[node]
    others = (follows for process, follows in seen.standbys.items() if process != seen.process)
    has_priority = node in seen.caught_up or not any(node in follows for follows in others)
    return since_s if has_priority else since_s + FOLLOWERS_FIRST_S


def _follow(seen: Seen, allowed: Set[str]) -> frozenset[str]:
    own = set(seen.standbys.get(seen.process, frozenset())) & allowed
    others = [follows for process, follows in seen.standbys.items() if process != seen.process]
    counts = {node: sum(node in follows for follows in others) + (node in own) for node in seen.nodes}

    def order(node: str) -> tuple[int, bytes]:
        return counts[node], _rank(seen.process, node)

    wanted = min(seen.max_follows, len(allowed))
    while len(own) > wanted:
        dropped = max(own, key=order)
        own.discard(dropped)
        counts[dropped] -= 1
    while len(own) < wanted:
        added = min(allowed - own, key=order)
        own.add(added)
        counts[added] += 1
    if (move := _move(seen, counts, own)) is not None and move[1] in allowed:
        own = own - {move[0]} | {move[1]}
    return frozenset(own)


def _move(seen: Seen, counts: Mapping[str, int], own: Set[str]) -> tuple[str, str] | None:
    """Return the node to leave and the one to follow instead, if this process is the one to change."""
    if not counts:
        return None
    most = max(counts, key=lambda node: (counts[node], node))
    fewest = min(counts, key=lambda node: (counts[node], node))
    if counts[most] - counts[fewest] < 2:
        return None
    follows_of = {**seen.standbys, seen.process: own}
    movers = [process for process, follows in follows_of.items() if most in follows and fewest not in follows]
    return (most, fewest) if min(movers, default=None) == seen.process else None


def _rank(process: str, node: str) -> bytes:
    """Return a number that orders nodes differently for each process, so that equal ones do not all choose the same."""
    return blake2b(f"{process} {node}".encode(), digest_size=8).digest()
