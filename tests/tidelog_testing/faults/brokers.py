"""Trouble of a Kafka of three nodes: one of them is killed, or stopped, and comes back later."""

from collections import Counter
from random import Random
from typing import Final

from tidelog_testing.servers.kafka import KafkaProcesses

NODES: Final = 3
SETTINGS: Final = {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500}
"""With these a partition has another leader a few seconds after its leader was killed."""


class BrokerTrouble:
    """Calls make trouble, or repair it. Never two nodes at a time: two of three copies are required.

    Attributes:
        done: What was done, by kind.
    """

    def __init__(self, kafka: KafkaProcesses, topic: str, random: Random) -> None:
        self.done: Counter[str] = Counter()
        self._kafka = kafka
        self._topic = topic
        self._random = random
        self._killed: int | None = None
        self._stopped: int | None = None

    def __call__(self) -> None:
        """Repair the trouble of an earlier call, or make some once all nodes have all records."""
        if self._killed is not None or self._stopped is not None:
            self.repair()
            return
        leader, copies = self._kafka.copies(self._topic)
        if leader is None or copies < NODES or self._random.random() < 0.3:
            return
        node = leader if self._random.random() < 0.6 else self._random.randrange(NODES)
        kind = "killed" if self._random.random() < 0.7 else "stopped"
        self.done[f"{kind} {'leader' if node == leader else 'follower'}"] += 1
        if kind == "killed":
            self._kafka.kill(node)
            self._killed = node
        else:
            self._kafka.pause(node)
            self._stopped = node

    def repair(self) -> None:
        """Bring a node back."""
        if self._killed is not None:
            self._kafka.start(self._killed)
        if self._stopped is not None:
            self._kafka.resume(self._stopped)
        self._killed = self._stopped = None
