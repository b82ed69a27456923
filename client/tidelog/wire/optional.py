"""Packages that the client needs for some calls only."""

import importlib
from typing import Any, Final

_INSTALL: Final = {
    "pyarrow": "pip install '.[arrow]'` in a clone of Tidelog",
    "pandas": "pip install pandas`",
    "polars": "pip install polars`",
}


def need(package: str) -> Any:
    """Return a package.

    Raises:
        ModuleNotFoundError: It is not installed; the error says how to install it.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as missing:
        if missing.name != package:
            raise
        raise ModuleNotFoundError(f"this needs {package}: run `{_INSTALL[package]}", name=package) from missing
