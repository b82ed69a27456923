"""How logs in an engine are made, checked and found: the contract of every engine that servers use."""

from typing import NamedTuple, Protocol

from tidelog_server.recordlog.engine import LogEngine, ReadableLog

LOG_PREFIX = "tidelog."
"""Topics of logs are named so by default, with the cluster and the node: ``tidelog.single.node-1``."""


class FoundTopic(NamedTuple):
    """A topic that may have a log.

    Attributes:
        name: Its name.
        replicas: Number of copies.
        in_sync: Number of those that are in sync; None if the engine does not say it.
        problem: The setting with which it cannot be used; empty if all are as they must be.
    """

    name: str
    replicas: int
    in_sync: int | None
    problem: str


class Copies(NamedTuple):
    """How safe an append is.

    Attributes:
        copies: Number of copies of a record.
        confirming: How many of them must be stored before it is confirmed.
        advice: What to do for more.
    """

    copies: int
    confirming: int
    advice: str


class LogReader(ReadableLog, Protocol):
    """Reads a log; its user closes it."""

    def close(self) -> None:
        """Disconnect."""
        ...


class LogAccess(Protocol):
    """Topics of an engine, as logs need them."""

    @property
    def system(self) -> str:
        """Name of the engine, such as ``Kafka``."""
        ...

    @property
    def address(self) -> str:
        """Where it is."""
        ...

    def engine(self, topic: str) -> LogEngine:
        """Return the log in a topic, which was checked.

        Raises:
            LogSetupError: An option is not allowed.
        """
        ...

    def reader(self, topic: str) -> LogReader:
        """Return a reader of a topic; the caller closes it."""
        ...

    def create(self, topic: str, replicas: int | None = None) -> None:
        """Create a topic for a log.

        Args:
            topic: Its name.
            replicas: Number of copies; None for what the engine recommends.

        Raises:
            LogExistsError: There is a topic of this name.
            LogSetupError: The engine refused.
            EngineUnavailableError: The engine does not answer.
        """
        ...

    def check(self, topic: str) -> bytes:
        """Check that a topic is as a log needs it; return its id, which differs for each topic that was ever made.

        Raises:
            LogMissingError: There is no such topic.
            LogSetupError: A setting would lose records, or refuse them.
            EngineUnavailableError: The engine does not answer, or too few copies are in sync.
        """
        ...

    def check_created(self, topic: str) -> bytes:
        """As ``check``, of a topic that was created just now: brokers may not know it yet."""
        ...

    def is_empty(self, topic: str) -> bool:
        """Return whether nothing was ever appended to a topic. Raises as ``check``."""
        ...

    def id_of(self, topic: str) -> bytes:
        """Return the id of a topic, whatever its settings are, for a process that only reads. Raises as ``check``."""
        ...

    def answering(self) -> str:
        """Return who answers, such as ``1 broker answers``.

        Raises:
            LogSetupError: The engine refused.
            EngineUnavailableError: The engine does not answer.
        """
        ...

    def copies_of(self, topic: str) -> Copies:
        """Return the copies of a topic. Raises as ``check``."""
        ...

    def delete(self, topic: str) -> None:
        """Delete a topic and everything in it. Raises as ``create``."""
        ...

    def find_topics(self) -> list[FoundTopic]:
        """Return the topics that may have logs, by name: those named as logs are, and those that are set up for one.

        Raises:
            LogSetupError: The engine refused.
            EngineUnavailableError: The engine does not answer.
        """
        ...
