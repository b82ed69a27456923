"""The names that a package exports."""

from types import ModuleType


def exported_names(package: ModuleType) -> list[str]:
    """Return ``__all__`` of a package of the client, which the package sets when it is imported."""
    names: list[str] = getattr(package, "__all__")  # noqa: B009 - type checkers cannot see it
    return names
