"""How a server reaches Kafka: addresses, options, and topics as logs need them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType, TopicDescription  # type: ignore[attr-defined]  # public there, imported by it from another module
from confluent_kafka.cimpl import NewTopic

from tidelog_server.recordlog.access import LOG_PREFIX, Copies, FoundTopic
from tidelog_server.recordlog.engine import (
    EngineUnavailableError,
    LogDeniedError,
    LogExistsError,
    LogMissingError,
    LogSetupError,
)
from tidelog_server.recordlog.kafka import ANSWER_WITHIN_S, OWN_OPTIONS, KafkaEngine, KafkaReader, unavailable
from tidelog_server.recordlog.options import read_options
from tidelog_server.recordlog.records import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from concurrent.futures import Future

# Other names of our options, and options that contradict them.
_ALIASES: Final = frozenset({
    "bootstrap.servers", "metadata.broker.list", "request.required.acks", "delivery.timeout.ms",
    "queue.buffering.max.ms", "transactional.id", "retries", "message.send.max.retries", "max.in.flight",
    "max.in.flight.requests.per.connection", "message.max.bytes", "enable.gapless.guarantee",
    "allow.auto.create.topics",
})  # fmt: skip
_UNSTORED: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - its public name
_REPLICAS: Final = 3
_LOOK_AGAIN_S: Final = 0.1
_LOOKS: Final = 100
_IN_SYNC_OF_THREE: Final = 2
# A broker adds its own header to a record, and counts it.
_TOPIC_RECORD_BYTES: Final = MAX_RECORD_BYTES + 1_024
_SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
"""Settings of a topic without which Kafka deletes or loses records that were confirmed."""


class TooFewCopiesError(EngineUnavailableError):
    """Fewer copies of a topic are in sync than must confirm a record."""


class KafkaAccess:
    """Addresses and options of a Kafka. Implements ``LogAccess``.

    Attributes:
        servers: Addresses of brokers.
        options: Options of librdkafka.
    """

    system = "Kafka"

    def __init__(self, servers: str, options: Mapping[str, str] | None = None) -> None:
        """Connect in the background.

        Raises:
            LogSetupError: An option is unknown, or its value is not allowed.
        """
        self.servers = servers
        self.options = dict(options or {})
        # What the client reports about its connections; a call itself only ends without an answer.
        self._last_error: KafkaError | None = None
        connection: dict[str, Any] = {
            **self.options,
            "bootstrap.servers": servers,
            "log_level": 0,
            "error_cb": self._note,
        }
        try:
            self._admin = AdminClient(connection)
        except KafkaException as error:
            raise LogSetupError(f"an option of Kafka's client is not allowed: {_text(error)}") from error

    @classmethod
    def load(cls, servers: str, options_file: str) -> "KafkaAccess":
        """Connect with the options in a file; without a file if its name is empty. Raises LogSetupError."""
        return cls(servers, read_options(Path(options_file), OWN_OPTIONS | _ALIASES) if options_file else None)

    @property
    def address(self) -> str:
        return self.servers

    def engine(self, topic: str) -> KafkaEngine:
        try:
            return KafkaEngine(self.servers, topic, self.options)
        except KafkaException as error:
            raise LogSetupError(f"an option of Kafka's client is not allowed: {_text(error)}") from error

    def create(self, topic: str, replicas: int | None = None) -> None:
        with self._calls(f"create the topic '{topic}'"):
            if replicas is None:
                found = self._admin.list_topics(timeout=ANSWER_WITHIN_S)
                replicas = min(_REPLICAS, len(found.brokers))
            settings = {
                **_SETTINGS, "min.insync.replicas": str(_in_sync(replicas)),
                "max.message.bytes": str(max(1 << 20, _TOPIC_RECORD_BYTES)),
            }  # fmt: skip
            new = NewTopic(topic, 1, replicas, config=settings)
            try:
                self._admin.create_topics([new], request_timeout=ANSWER_WITHIN_S)[topic].result(ANSWER_WITHIN_S)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    raise LogExistsError(f"the topic '{topic}' exists: choose another name") from error
                raise

    def check_created(self, topic: str) -> bytes:
        for _ in range(_LOOKS):
            with suppress(LogMissingError, TooFewCopiesError):
                return self.check(topic)
            self._admin.poll(_LOOK_AGAIN_S)
        return self.check(topic)

    def is_empty(self, topic: str) -> bool:
        engine = self.engine(topic)
        try:
            return engine.bounds().end == 0
        finally:
            engine.close()

    def check(self, topic: str) -> bytes:
        found = self._described(topic)
        settings = self._settings_of(topic)
        if len(found.partitions) != 1:
            raise LogSetupError(f"the topic '{topic}' has {len(found.partitions)} partitions: a log needs 1")
        partition = found.partitions[0]
        _check_settings(topic, settings, len(partition.replicas))
        in_sync, needed = len(partition.isr), int(settings["min.insync.replicas"])
        if in_sync < needed:
            raise TooFewCopiesError(
                f"of the topic '{topic}', {in_sync} replicas are in sync, and min.insync.replicas is {needed}: start "
                "the missing brokers"
            )
        return _bytes_of(found.topic_id)

    def answering(self) -> str:
        with self._calls("connect"):
            brokers = len(self._admin.list_topics(timeout=ANSWER_WITHIN_S).brokers)
        return "1 broker answers" if brokers == 1 else f"{brokers} brokers answer"

    def copies_of(self, topic: str) -> Copies:
        copies = len(self._described(topic).partitions[0].replicas)
        in_sync = int(self._settings_of(topic)["min.insync.replicas"])
        advice = f"Run {_REPLICAS} brokers, in different racks; more copies of a topic: kafka-reassign-partitions.sh"
        return Copies(copies, min(copies, in_sync), advice)

    def delete(self, topic: str) -> None:
        with self._calls(f"delete the topic '{topic}'"):
            deleted = self._admin.delete_topics([topic], request_timeout=ANSWER_WITHIN_S)
            deleted[topic].result(ANSWER_WITHIN_S)

    def id_of(self, topic: str) -> bytes:
        return _bytes_of(self._described(topic).topic_id)

    def _described(self, topic: str) -> TopicDescription:
        with self._describes(topic):
            described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_WITHIN_S)
            found: TopicDescription = described[topic].result(ANSWER_WITHIN_S)
        return found

    def find_topics(self) -> list[FoundTopic]:
        with self._calls("list the topics"):
            listed = self._admin.list_topics(timeout=ANSWER_WITHIN_S).topics
            parts = {
                name: found.partitions[0]
                for name, found in sorted(listed.items())
                if len(found.partitions) == 1 and not name.startswith("__")
            }
            resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in parts}
            futures = (
                self._admin.describe_configs(list(resources.values()), request_timeout=ANSWER_WITHIN_S)
                if resources
                else {}
            )
        topics = []
        for name, part in parts.items():
            problem = self._problem_of(name, futures[resources[name]], len(part.replicas))
            if not problem or name.startswith(LOG_PREFIX):
                topics.append(FoundTopic(name, len(part.replicas), len(part.isrs), problem))
        return topics

    def _problem_of(self, topic: str, settings: "Future[Any]", replicas: int) -> str:
        try:
            with self._calls(f"describe the settings of the topic '{topic}'"):
                found = {name: entry.value for name, entry in settings.result(ANSWER_WITHIN_S).items()}
            _check_settings(topic, found, replicas)
        except LogSetupError as error:
            return str(error)
        return ""

    def reader(self, topic: str) -> KafkaReader:
        return KafkaReader(self.servers, topic, self.options)

    def _settings_of(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        with self._describes(topic):
            future = self._admin.describe_configs([resource], request_timeout=ANSWER_WITHIN_S)[resource]
            return {name: entry.value for name, entry in future.result(ANSWER_WITHIN_S).items()}

    @contextmanager
    def _describes(self, topic: str) -> Iterator[None]:
        """As ``_calls``; LogMissingError if a broker does not know the topic. Of a new one, another broker may know."""
        with self._calls(f"describe the topic '{topic}'"):
            try:
                yield
            except KafkaException as error:
                if error.args[0].code() in _UNSTORED:
                    raise LogMissingError(
                        f"there is no topic '{topic}': create the log with `tidelog engine create {topic}`, or correct "
                        "engine.topic"
                    ) from error
                raise

    @contextmanager
    def _calls(self, doing: str) -> Iterator[None]:
        """Raise what Kafka answers; ``doing`` completes 'cannot'."""
        try:
            yield
        except (KafkaException, TimeoutError) as error:
            # Reports the errors of connections.
            self._admin.poll(0)
            raise self._as_ours(doing, error) from error

    def _as_ours(self, doing: str, error: KafkaException | TimeoutError) -> Exception:
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        if isinstance(error, KafkaException) and isinstance(denied := unavailable(error, doing), LogDeniedError):
            return denied
        last = self._last_error
        if last is not None and last.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):  # noqa: SLF001 - their public names
            return LogSetupError(f"cannot {doing}: Kafka refused the connection ({last.str()}): correct the options")
        if isinstance(error, KafkaException) and not error.args[0].retriable() and code not in _NO_ANSWER:
            return LogSetupError(f"cannot {doing}: {_text(error)}")
        reason = _text(error) if isinstance(error, KafkaException) else f"no answer within {ANSWER_WITHIN_S:.0f} s"
        return EngineUnavailableError(f"cannot {doing} at {self.servers}: {reason}")

    def _note(self, error: KafkaError) -> None:
        self._last_error = error


_NO_ANSWER: Final = frozenset({
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,  # noqa: SLF001 - their public names
})  # fmt: skip


def _check_settings(topic: str, settings: Mapping[str, str], replicas: int) -> None:
    """Raise LogSetupError if a setting would lose or refuse records."""
    for name, needed in _SETTINGS.items():
        if settings.get(name) != needed:
            raise _unfit(topic, name, settings.get(name), needed)
    in_sync = _in_sync(replicas)
    if int(settings["min.insync.replicas"]) < in_sync:
        raise _unfit(topic, "min.insync.replicas", settings["min.insync.replicas"], f"at least {in_sync}")
    if int(settings["max.message.bytes"]) < _TOPIC_RECORD_BYTES:
        raise _unfit(topic, "max.message.bytes", settings["max.message.bytes"], f"at least {_TOPIC_RECORD_BYTES}")


def _unfit(topic: str, name: str, value: str | None, needed: str) -> LogSetupError:
    return LogSetupError(
        f"the topic '{topic}' has {name}={value}, and a log needs {needed}: change it with kafka-configs.sh. Nothing "
        "was changed"
    )


def _in_sync(replicas: int) -> int:
    return _IN_SYNC_OF_THREE if replicas >= _REPLICAS else 1


def _bytes_of(topic_id: Uuid) -> bytes:
    # Its types do not name the methods.
    value: Any = topic_id
    halves = (value.get_most_significant_bits(), value.get_least_significant_bits())
    return b"".join(half.to_bytes(8, "big", signed=True) for half in halves)


def _text(error: KafkaException) -> str:
    text: Any = error.args[0].str()
    return str(text)
