"""The public names of `import tidelog`; tests/tidy pins the list. Method: compare the module with its list."""

import inspect

import tidelog
from tidelog_testing.documents.exports import exported_names


def test_the_public_names_are_sorted() -> None:
    assert sorted(exported_names(tidelog)) == exported_names(tidelog)


def test_nothing_else_is_public() -> None:
    offered = {
        name for name, value in vars(tidelog).items() if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert offered == set(exported_names(tidelog))


def test_every_error_is_a_tidelog_error() -> None:
    errors = [getattr(tidelog, name) for name in exported_names(tidelog) if name.endswith("Error")]

    assert all(issubclass(error, tidelog.TidelogError) for error in errors)
