"""What the pages show works for a user who reads them in order, and again.

Method: one server; each Python example and command of README.md, the tour and the guides, in the order of the
text, as programs and in a shell.
"""

from pathlib import Path

from tidelog import Client
from tidelog.testing import start_server
from tidelog_testing.documents.examples import examples_of, output_of, page, run_commands
from tidelog_testing.servers.processes import ROOT

PAGES = ("channels.md", "clusters.md", "groups.md", "wal.md", "rocksmq.md")


def test_readers_of_the_pages_get_what_they_show(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    tour = (ROOT / "docs" / "start" / "tour.md").read_text()
    programs = [text for text in examples_of(tour) if "pyspark" not in text and "def test_" not in text]
    commands = examples_of(tour, "console")
    assert (len(programs), len(commands)) == (4, 3)
    with start_server() as server:
        [first], [console] = examples_of(readme), examples_of(readme, "console")
        assert output_of(first, server.endpoint, tmp_path).startswith("[b'20.5', b'21.0']")
        assert "three" in run_commands(console, server.endpoint, tmp_path)
        start, broadcasts, groups = commands
        assert '"payload": "three"' in run_commands(start, server.endpoint, tmp_path)
        for program in programs:
            output_of(program, server.endpoint, tmp_path)
        run_commands(broadcasts, server.endpoint, tmp_path)
        assert "billing" in run_commands(groups, server.endpoint, tmp_path)
        # A key that a broadcast still holds would stop one of them.
        for program in programs:
            output_of(program, server.endpoint, tmp_path)
        printed = {
            name: "".join(output_of(program, server.endpoint, tmp_path) for program in examples_of(page(name)))
            for name in PAGES
        }
        assert printed["groups.md"].count("minutes") == 2
        with Client(server.endpoint) as client:
            # No page removes what another one has made.
            assert b"one" in [message.payload for batch in client.scan("orders/0") for message in batch]
