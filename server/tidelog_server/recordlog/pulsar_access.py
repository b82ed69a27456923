"""How a server reaches Pulsar: addresses, options, and topics as logs need them."""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from tidelog_server.recordlog.access import Copies, FoundTopic
from tidelog_server.recordlog.engine import LogExistsError, LogMissingError, LogSetupError
from tidelog_server.recordlog.pulsar import SUBSCRIPTION, PulsarEngine, Topic, topic_path
from tidelog_server.recordlog.pulsar_connection import PulsarConnection
from tidelog_server.recordlog.records import MAX_RECORD_BYTES, ORIGIN_BYTES

DEFAULT_NAMESPACE: Final = "public/default"
_ID: Final = "tidelog.id"
"""The property of a topic that has the id of its log."""
_EARLIEST: Final[Mapping[str, int]] = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
_EVICTION: Final = "consumer_backlog_eviction"
_DELETES_CAUGHT_UP: Final = "delete_when_subscriptions_caught_up"


def topic_name(topic: str, namespace: str) -> str:
    """Return the full name of a topic, which may be in a namespace."""
    return topic if "://" in topic else f"persistent://{namespace}/{topic}"


class PulsarAccess:
    """A namespace of a Pulsar. Implements ``LogAccess``.

    Attributes:
        connection: The Pulsar.
        namespace: Tenant and namespace of topics that are named without them.
    """

    system = "Pulsar"

    def __init__(self, connection: PulsarConnection, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Do no I/O."""
        self.connection = connection
        self._call = connection.call
        self.namespace = namespace

    @property
    def address(self) -> str:
        return self.connection.service_url

    def engine(self, topic: str) -> PulsarEngine:
        return PulsarEngine(self.connection, self._name(topic))

    # An engine opens no producer before it sends.
    reader = engine

    def create(self, topic: str, replicas: int | None = None) -> None:
        if replicas is not None:
            raise LogSetupError(
                "the copies of a topic of Pulsar are a policy of its namespace: set it with `pulsar-admin namespaces "
                "set-persistence`"
            )
        path = topic_path(self._name(topic))
        found: LogExistsError | None = None
        try:
            identity = {_ID: secrets.token_hex(ORIGIN_BYTES)}
            self._call("PUT", path, f"create the topic '{topic}'", identity)
        except LogExistsError as error:
            found = error
        if found is None or (self._id_of(topic) and self.is_empty(topic)):
            # Without a subscription, Pulsar deletes a record as soon as it has stored it. An earlier command may have
            # ended before this one.
            try:
                doing = f"create the subscription '{SUBSCRIPTION}' of the topic '{topic}'"
                self._call("PUT", f"{path}/subscription/{SUBSCRIPTION}", doing, _EARLIEST)
            except LogExistsError as error:
                found = found or error
        if found is not None:
            raise LogExistsError(f"the topic '{topic}' exists: choose another name") from found

    def is_empty(self, topic: str) -> bool:
        begin, end = self._topic(topic).state().bounds()
        return begin == end

    def check(self, topic: str) -> bytes:
        identity = self.id_of(topic)
        if self._topic(topic).state().trimmed is None:
            raise LogSetupError(
                f"the topic '{topic}' has no subscription '{SUBSCRIPTION}', without which Pulsar deletes its records: "
                "it was deleted, and records may be lost. Nothing was changed"
            )
        for problem in self._problems(topic):
            raise LogSetupError(f"{problem}. Nothing was changed")
        return identity

    # The broker that creates a topic knows it at once.
    check_created = check

    def id_of(self, topic: str) -> bytes:
        identity = self._id_of(topic)
        if not identity:
            raise LogSetupError(f"the topic '{topic}' has no property {_ID}: `tidelog engine create` did not create it")
        return identity

    def delete(self, topic: str) -> None:
        self._call("DELETE", f"{topic_path(self._name(topic))}?force=true", f"delete the topic '{topic}'")

    def find_topics(self) -> list[FoundTopic]:
        prefix = f"persistent://{self.namespace}/"
        listed = self._call("GET", f"/persistent/{self.namespace}", f"list the topics of '{self.namespace}'")
        names = sorted(unquote(each.removeprefix(prefix)) for each in listed)
        return [found for found in map(self._found, names) if found is not None]

    def _found(self, topic: str) -> FoundTopic | None:
        """Return a topic; None if it has no id of a log, or was deleted meanwhile."""
        try:
            if not self._id_of(topic):
                return None
            copies = self.copies_of(topic).copies
            problem = ""
            try:
                self.check(topic)
            except LogMissingError:
                return None
            except LogSetupError as error:
                problem = str(error)
        except LogMissingError:
            return None
        return FoundTopic(topic, copies, None, problem)

    def answering(self) -> str:
        self._call("GET", f"/persistent/{self.namespace}", f"list the topics of '{self.namespace}'")
        return f"the administration API at {self.connection.admin_url} answers for the brokers"

    def copies_of(self, topic: str) -> Copies:
        path = f"{topic_path(self._name(topic))}/persistence?applied=true"
        found = self._call("GET", path, f"read the copies of the topic '{topic}'")
        advice = "Run 3 bookies, and let `pulsar-admin namespaces set-persistence` require 3 copies, of which 2 confirm"
        return Copies(int(found["bookkeeperWriteQuorum"]), int(found["bookkeeperAckQuorum"]), advice)

    def _problems(self, topic: str) -> Iterator[str]:
        """Yield the policies with which Pulsar would delete records that were confirmed, or refuse others."""
        if ttl_s := self._policy(topic, "messageTTL"):
            yield f"the topic '{topic}' has messageTTL={ttl_s}, and a log needs 0: Pulsar would delete it"
        for kind, quota in (self._policy(topic, "backlogQuotaMap") or {}).items():
            if quota.get("policy") == _EVICTION and max(quota.get("limitSize", -1), quota.get("limitTime", -1)) > 0:
                yield (
                    f"the topic '{topic}' has the backlog quota {kind} with policy={_EVICTION}, which would delete the "
                    "log: remove it"
                )
        inactive = self._policy(topic, "inactiveTopicPolicies") or {}
        if inactive.get("deleteWhileInactive") and inactive.get("inactiveTopicDeleteMode") == _DELETES_CAUGHT_UP:
            yield (
                f"the topic '{topic}' has inactiveTopicDeleteMode={_DELETES_CAUGHT_UP}, and would be deleted: set "
                "delete_when_no_subscriptions"
            )
        expires = self._call(
            "GET", f"/namespaces/{self._namespace_of(topic)}/subscriptionExpirationTime",
            f"read the policies of '{self._namespace_of(topic)}'",
        )  # fmt: skip
        if expires:
            yield (
                f"the namespace of the topic '{topic}' has subscriptionExpirationTime={expires}, and a log needs 0: "
                "Pulsar would delete the subscription and the log"
            )
        size_bytes = self._policy(topic, "maxMessageSize")
        if size_bytes and size_bytes < MAX_RECORD_BYTES:
            yield f"the topic '{topic}' has maxMessageSize={size_bytes}, and a log needs at least {MAX_RECORD_BYTES}"

    def _policy(self, topic: str, name: str) -> Any:
        """Return a policy of a topic, that of its namespace, or that of the brokers."""
        path = f"{topic_path(self._name(topic))}/{name}?applied=true"
        return self._call("GET", path, f"read {name} of the topic '{topic}'")

    def _id_of(self, topic: str) -> bytes:
        try:
            path = f"{topic_path(self._name(topic))}/properties"
            properties = self._call("GET", path, f"describe the topic '{topic}'")
        except LogMissingError as error:
            raise LogMissingError(
                f"there is no topic '{topic}': create the log with `tidelog engine create {topic}`, or correct "
                "engine.topic"
            ) from error
        try:
            found = bytes.fromhex((properties or {}).get(_ID, ""))
        except ValueError:
            return b""
        return found if len(found) == ORIGIN_BYTES else b""

    def _topic(self, topic: str) -> Topic:
        return Topic(self.connection, self._name(topic))

    def _name(self, topic: str) -> str:
        return topic_name(topic, self.namespace)

    def _namespace_of(self, topic: str) -> str:
        return "/".join(self._name(topic).partition("://")[2].split("/", 2)[:2])
