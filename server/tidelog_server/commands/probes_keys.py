"""A probe of the keys of signed tokens: fetches them as a server does. It reports problems as a finding."""

from collections.abc import Mapping

from tidelog_server.commands.probes import Finding, Severity
from tidelog_server.core.names import shown
from tidelog_server.security.jwks import KeySetError, KeySource, RefusedKey, VerificationKey

_CHECK = "keys of signed tokens"


def check_keys(source: KeySource) -> Finding:
    """Fetch or read a key set, and report its keys. Blocks."""
    try:
        keys = source.read()
    except KeySetError as error:
        return Finding(_CHECK, Severity.FAILURE, str(error))
    text = f"{source}: {', '.join(_described(keys))}"
    has_refused = any(isinstance(key, RefusedKey) for key in keys.values())
    return Finding(_CHECK, Severity.WARNING if has_refused else Severity.OK, text)


def _described(keys: Mapping[str, VerificationKey | RefusedKey]) -> list[str]:
    return [
        f"'{shown(kid)}' ({key.algorithm})" if isinstance(key, VerificationKey) else f"'{shown(kid)}' {key.reason}"
        for kid, key in keys.items()
    ]
