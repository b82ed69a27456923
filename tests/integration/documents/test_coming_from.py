"""The pages for readers who know another system work as copied. Method: each program and command, in order."""

from pathlib import Path
from typing import Final

import pytest

from tidelog.testing import start_server
from tidelog_testing.documents.examples import examples_of, output_of, run_commands
from tidelog_testing.parts.soaks import in_core
from tidelog_testing.servers.processes import ROOT

PRINTED: Final = {
    "kafka": ["orders/0 0", "orders/1 0", "orders/2 0", "orders/3 0", "3 [b'ann', b'bob']"],
    "nats": ["b'ann'", "b'bob'", "b'welcome ann' 1"],
    "pulsar": ["b'lamp' b'on' {'room': 'hall'}", "[[b'on']]", "b'replace the bulb'"],
    "redis-streams": ["cpu b'0.7'", "1", "b'photo-1.jpg' 200"],
}
LAST_COMMAND: Final = {"kafka": "/cart", "nats": "hello", "pulsar": "chores", "redis-streams": "photo-1.jpg"}


@pytest.mark.parametrize("system", in_core(["kafka"], PRINTED))
def test_the_examples_of_the_page_run_as_copied(system: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "start" / f"from-{system}.md").read_text()
    [program], [commands] = examples_of(text), examples_of(text, "console")
    with start_server() as server:
        assert output_of(program, server.endpoint, tmp_path).splitlines() == PRINTED[system]
        assert LAST_COMMAND[system] in run_commands(commands, server.endpoint, tmp_path).splitlines()[-1]
