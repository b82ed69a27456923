"""What a benchmark has in an engine: its topics, and the process of the engine's floor."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, Self

from tidelog_server.commands.bench.floors.floor_process import FloorProcess
from tidelog_server.commands.config_flags import effective_config
from tidelog_server.commands.engine import create_log, open_access, told
from tidelog_server.recordlog.kinds import ENGINE_KINDS, EngineKind

_FLOORS: Final = {
    "kafka": ("kafka_floor", ("servers", "options_file")),
    "pulsar": ("pulsar_floor", ("service_url", "admin_url", "namespace", "options_file")),
}
"""The module of the floor of each engine, and the settings that it takes."""


@dataclass(frozen=True, slots=True)
class EngineBench:
    """What a benchmark has in an engine.

    Attributes:
        kind: Which engine it is.
        settings: Settings of a server on the log.
        topic: Topic of the log.
        floor: The bare client, on a topic of its own; see ``RecordFloor``.
    """

    kind: EngineKind
    settings: Mapping[str, str]
    topic: str
    floor: FloorProcess

    @classmethod
    @contextmanager
    def running(cls, kind: str, settings: Mapping[str, str]) -> Iterator[Self]:
        """Yield a new log and a bare client on another topic with the same settings; both topics are deleted.

        Args:
            kind: One of ``ENGINE_KINDS``.
            settings: Those of the section engine, by their full names.

        Raises:
            CommandError: The engine refused, or does not answer.
        """
        engine = effective_config(None, settings).engine
        topic = f"tidelog-bench-{os.getpid()}-{token_hex(4)}"
        with ExitStack() as stack:
            with told():
                access = open_access(kind, engine)
                create_log(access, topic)
                stack.callback(access.delete, topic)
                access.create(f"{topic}-floor")
                stack.callback(access.delete, f"{topic}-floor")
                access.check_created(f"{topic}-floor")
            module, taken = _FLOORS[kind]
            arguments = {"topic": f"{topic}-floor", **{name: getattr(engine, name) for name in taken}}
            floor = stack.enter_context(closing(FloorProcess(module, json.dumps(arguments))))
            yield cls(ENGINE_KINDS[kind], {**settings, "storage.kind": kind, "engine.topic": topic}, topic, floor)
