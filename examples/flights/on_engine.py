"""A log of the demonstration in Kafka or Pulsar: a topic of its own, which is deleted afterwards."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tidelog_server.commands.engine import create_log, open_access, told
from tidelog_server.config import EngineSettings


@contextmanager
def log_in_engine(kind: str, addresses: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Create a log as ``tidelog engine create`` does; yield the settings of servers on it.

    Args:
        kind: One of ``ENGINE_KINDS``.
        addresses: Settings of the section engine, by their names in it.

    Raises:
        CommandError: The engine refused, or does not answer.
    """
    topic = f"tidelog.demo.{secrets.token_hex(4)}"
    with told():
        access = open_access(kind, EngineSettings.model_validate(addresses))
        create_log(access, topic)
    try:
        settings = {**addresses, "topic": topic}
        yield {"storage.kind": kind, **{f"engine.{name}": value for name, value in settings.items()}}
    finally:
        access.delete(topic)
