"""Answers of ``/livez``, ``/readyz`` and ``/healthz``, with the parameters of Kubernetes' API server. Pure.

Source: "Kubernetes API health endpoints"; ``verbose`` lists all checks, and ``exclude`` leaves out those that it names.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

# Checks that a request may exclude; a server has fewer.
MAX_EXCLUDED: Final = 16
PING: Final = "ping"


class HealthAnswer(NamedTuple):
    """An answer: whether all checks that were not excluded have passed, and its text."""

    has_passed: bool
    text: str


def answer(
    name: str, checks: Mapping[str, str | None], *, is_verbose: bool = False, excluded: Collection[str] = ()
) -> HealthAnswer:
    """Return the answer of an endpoint.

    Args:
        name: Name of the endpoint, such as ``readyz``.
        checks: What keeps each check from passing, in order; None if nothing does.
        is_verbose: Whether to list all checks.
        excluded: Names of checks that do not count; unknown ones have no effect; a list names them.
    """
    failed = {check: why for check, why in checks.items() if why is not None and check not in excluded}
    if not is_verbose:
        return (
            HealthAnswer(False, f"not ready: {next(iter(failed.values()))}\n") if failed else HealthAnswer(True, "ok\n")
        )
    lines = [_line(check, why, is_excluded=check in excluded) for check, why in checks.items()]
    if unknown := sorted(set(excluded) - checks.keys()):
        matches = ", ".join(f'"{each}"' for each in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {matches}")
    lines.append(f"{name} check {'failed' if failed else 'passed'}")
    return HealthAnswer(not failed, "\n".join(lines) + "\n")


def _line(check: str, why: str | None, *, is_excluded: bool) -> str:
    if is_excluded:
        return f"[+]{check} excluded: ok"
    return f"[+]{check} ok" if why is None else f"[-]{check} failed: {why}"
