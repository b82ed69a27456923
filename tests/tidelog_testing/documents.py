"""Pages with examples: their text, and running what they show."""

import re
import subprocess
import sys
from pathlib import Path

from tidelog.testing import start_server
from tidelog_testing.processes import ROOT


def page(name: str) -> str:
    """Return the text of ``client/<name>``."""
    return (ROOT / "client" / name).read_text()


def output_of_example(text: str, folder: Path) -> str:
    """Run the one Python example of a page against a server of its own, and return what it prints; it must succeed."""
    [example] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    program = folder / "example.py"
    with start_server() as running:
        program.write_text(example.replace("127.0.0.1:7420", running.endpoint))
        done = subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False,
            env={"PYTHONPATH": f"{ROOT / 'client'}"},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
