"""``tidelog help NAME`` for an error: what the client knows about it, without the documents."""

import inspect
from difflib import get_close_matches

import tidelog
from tidelog_cli.exit_codes import CommandError, ExitCode


def text_about(name: str) -> str:
    """Return the help of an error, by the name of its class or of a reason of the server, in any case.

    Raises:
        CommandError: No error has this name; similar ones are named.
    """
    found: dict[str, tuple[type[tidelog.TidelogError], list[str]]] = {}
    for kind in [getattr(tidelog, each) for each in dir(tidelog) if each.endswith("Error")]:
        reasons = [reason.removeprefix("REASON_") for reason in kind.reasons]
        found |= dict.fromkeys([kind.__name__, *reasons], (kind, reasons))
    names = {each.lower(): each for each in found}
    wanted = name.lower().removeprefix("reason_")
    if wanted in names:
        return _text(*found[names[wanted]])
    similar = " or ".join(names[each] for each in get_close_matches(wanted, names, 2))
    advice = f"did you mean {similar}?" if similar else "errors are named as in docs/reference/errors.md"
    raise CommandError(f"there is no command and no error '{name}': {advice}", ExitCode.USAGE)


def _text(kind: type[tidelog.TidelogError], reasons: list[str]) -> str:
    parents = ", ".join(parent.__name__ for parent in kind.__mro__[1:] if issubclass(parent, tidelog.TidelogError))
    facts = [("Below: ", parents), ("Reasons: ", ", ".join(reasons)), ("Section: ", kind.page)]
    lines = "\n".join(f"{label}{text}" for label, text in facts if text)
    return f"{kind.__name__}\n\n{(inspect.getdoc(kind) or '').replace('``', '`')}\n\n{lines}"
