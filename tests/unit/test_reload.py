"""New settings for a running server take effect all together or not at all.

Method: the pure registry, with parts that accept and parts that refuse.
"""

from collections.abc import Callable

import pytest

from tidelog_server.config import Config, ReloadablePart, Reloader, ReloadRefusedError, load_config


def a_config(**flags: str) -> Config:
    return load_config(None, {}, {name.replace("__", "."): value for name, value in flags.items()})


def test_what_may_change_does_and_the_rest_is_named() -> None:
    applied: list[str] = []
    reloader = Reloader(a_config())
    reloader.register(ReloadablePart(frozenset({"log.level"}), lambda config: lambda: applied.append(config.log.level)))

    outcome = reloader.reload(a_config(log__level="debug", server__grpc_port="1"))

    assert (outcome.changed, outcome.needs_restart) == (("log.level",), ("server.grpc_port",))
    assert applied == ["debug"]
    # What needs a restart is named until it has it; what took effect is not done twice.
    outcome = reloader.reload(a_config(log__level="debug", server__grpc_port="1"))
    assert (outcome.changed, outcome.needs_restart) == ((), ("server.grpc_port",))
    assert applied == ["debug"]


def test_a_part_that_refuses_keeps_all_others_from_changing() -> None:
    applied: list[str] = []

    def refuse(_: Config) -> Callable[[], None]:
        raise ValueError("the certificate is expired")

    reloader = Reloader(a_config())
    reloader.register(ReloadablePart(frozenset({"log.level"}), lambda config: lambda: applied.append(config.log.level)))
    reloader.register(ReloadablePart(frozenset({"log.format"}), refuse, is_always_due=True))

    with pytest.raises(ReloadRefusedError, match="expired"):
        reloader.reload(a_config(log__level="debug"))

    assert applied == []
