"""Tables of the log store are where the server looks for them."""

from pathlib import Path

import tidelog_server
from tidelog_server.storage.rows import tables

PACKAGE = Path(tidelog_server.__path__[0])


def test_a_table_is_defined_in_the_module_rows_of_a_package_and_nowhere_else() -> None:
    named = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "(Table[" in path.read_text()}
    found = {type(table).__module__.replace("tidelog_server.", "").replace(".", "/") + ".py" for table in tables()}
    assert named == found
    assert all(path.count("/") == 1 and path.endswith("/rows.py") for path in found)
