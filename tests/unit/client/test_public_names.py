"""The public names of `import tidelog`; tests/tidy pins the list. Method: compare the module with its list."""

import inspect

import tidelog


def test_the_public_names_are_sorted() -> None:
    assert sorted(tidelog.__all__) == tidelog.__all__


def test_nothing_else_is_public() -> None:
    offered = {
        name for name, value in vars(tidelog).items() if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert offered == set(tidelog.__all__)


def test_every_error_is_a_tidelog_error_and_stands_in_the_tree() -> None:
    errors = [getattr(tidelog, name) for name in tidelog.__all__ if name.endswith("Error")]
    tree = inspect.getdoc(inspect.getmodule(tidelog.TidelogError.__init__)) or ""

    assert all(issubclass(error, tidelog.TidelogError) for error in errors)
    assert all(error.__name__ in tree for error in errors)
