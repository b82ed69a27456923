"""The engines that may have the logs of servers: one row for each."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class EngineKind(NamedTuple):
    """An engine.

    Attributes:
        system: Its name.
        module: The module of its client.
        package: The package with the client.
        extra: The extra of Tidelog that installs it.
        address: The setting of section engine with its address.
        form: The form of that.
    """

    system: str
    module: str
    package: str
    extra: str
    address: str
    form: str

    @property
    def remedy(self) -> str:
        """What to do without the client."""
        return f'run `pip install ".[{self.extra}]"` in a clone of Tidelog'

    @property
    def missing(self) -> str:
        """What to say without the client."""
        return f"{self.package} is not installed: {self.remedy}"


ENGINE_KINDS: Final[Mapping[str, EngineKind]] = {
    "kafka": EngineKind("Kafka", "confluent_kafka", "confluent-kafka", "kafka", "servers", "HOST:PORT"),
    "pulsar": EngineKind("Pulsar", "pulsar", "pulsar-client", "pulsar", "service_url", "pulsar://HOST:PORT"),
}
"""The engines, by the value of ``storage.kind``."""
