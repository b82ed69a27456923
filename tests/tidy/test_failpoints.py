"""Every failpoint of the server is used by the product and by some test.

Method: the names of the enumeration, searched for in the text of both trees.
"""

from tidelog_server.runtime.failpoints import Failpoint
from tidy.tree import ROOT, python_files


def text_of(folder: str, *, but: str = "") -> str:
    return "\n".join(path.read_text() for path in python_files() if ROOT / folder in path.parents and path.name != but)


def test_every_failpoint_is_hit_by_the_product() -> None:
    product = text_of("server", but="failpoints.py")
    assert [point for point in Failpoint if f"Failpoint.{point.name}" not in product] == []


def test_every_failpoint_is_used_by_a_test() -> None:
    tests = text_of("tests", but="test_failpoints.py")
    is_used_by_iteration = "in Failpoint" in tests or "list(Failpoint)" in tests
    unused = [point for point in Failpoint if point.name not in tests and point.value not in tests]
    assert is_used_by_iteration or unused == []
