"""The core suite stays a suite of every feature: the extended one names modules that exist, and leaves these.

Method: the table of ``tidelog_testing.suites`` against the tree.
"""

from tidelog_testing.suites import EXTENDED, is_extended
from tidy.tree import ROOT

# One short form of each kind of test that the extended suite has more of.
CORE = (
    "tests/crash/test_kill_failpoints.py",
    "tests/crash/test_kill_mixed.py",
    "tests/crash/test_kill_storm.py",
    "tests/integration/cluster/test_cluster.py",
    "tests/integration/spark/test_read.py",
    "tests/integration/spark/test_stream_read.py",
    "tests/integration/spark/test_write.py",
)


def test_every_module_of_the_extended_suite_exists() -> None:
    assert [name for modules in EXTENDED.values() for name in modules if not (ROOT / name).is_file()] == []


def test_no_module_is_in_the_extended_suite_for_two_reasons() -> None:
    names = [name for modules in EXTENDED.values() for name in modules]
    assert len(set(names)) == len(names)


def test_the_core_keeps_a_short_form_of_each_kind() -> None:
    assert [name for name in CORE if is_extended(f"{name}::test_x") or not (ROOT / name).is_file()] == []


def test_every_folder_of_integration_tests_is_in_the_core() -> None:
    folders = {path.parent for path in (ROOT / "tests/integration").glob("*/test_*.py")}
    in_core = {
        path.parent
        for path in (ROOT / "tests/integration").glob("*/test_*.py")
        if not is_extended(path.relative_to(ROOT).as_posix())
    }
    assert folders == in_core
