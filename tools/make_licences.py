"""Writes the list of licences of the packages that Tidelog uses, from the metadata of the installed ones.

``python tools/make_licences.py`` writes THIRD_PARTY_LICENCES.md, which the wheel and the image ship. A tidy test fails
if it is not what this prints: run it after ``make pin``.
"""

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = ROOT / "THIRD_PARTY_LICENCES.md"
IMAGE_EXTRAS: Final = ("server", "otel")
"""What the image installs."""
_LONGEST: Final = 60
_HEAD: Final = """# Licences of other packages

Written by `tools/make_licences.py` from the metadata of the packages that `constraints.txt` pins. The image contains
those of the first table; the second has what other extras, and development, install. Each package contains its text.
"""


def licence_of(package: Distribution) -> str:
    """Return the licence that a package states: its expression, a text that is a name, or its classifiers."""
    metadata = package.metadata
    if expression := metadata.json.get("license_expression"):
        return str(expression)
    stated = [text for text in metadata.get_all("Classifier", []) if text.startswith("License ::")]
    found = " OR ".join(text.rpartition(" :: ")[2] for text in stated if not text.endswith("DFSG approved"))
    text = str(metadata.json.get("license") or "").strip()
    is_name = "\n" not in text and len(text) <= _LONGEST and not text.startswith(("=", "Copyright"))
    return (text if is_name else "") or found or "unknown"


def pinned() -> list[str]:
    """Return the pinned packages, by name."""
    return sorted(re.findall(r"(?m)^([a-z0-9.-]+)==", (ROOT / "constraints.txt").read_text()))


def image_packages() -> set[str]:
    """Return the packages that the image contains, Tidelog itself excluded."""
    found: set[str] = set()
    waiting = list(_needed("tidelog", IMAGE_EXTRAS))
    while waiting:
        wanted = waiting.pop()
        name = _normal(wanted.name)
        if name not in found and name != "tidelog":
            found.add(name)
        elif name != "tidelog" and not wanted.extras:
            continue
        waiting += [each for each in _needed(name, tuple(wanted.extras)) if _normal(each.name) not in found]
    return found


def listed() -> str:
    """Return the list."""
    inside, names = image_packages(), pinned()
    parts = [_HEAD]
    for title, wanted in (("In the image", True), ("Other extras and development", False)):
        rows = [f"| {name} | {_stated(name)} |" for name in names if (name in inside) is wanted]
        parts.append("\n".join((f"## {title}\n", "| package | licence |", "|---|---|", *rows, "")))
    return "\n".join(parts)


def _stated(name: str) -> str:
    try:
        return licence_of(distribution(name))
    except PackageNotFoundError:
        return "not installed on Linux"


def _needed(name: str, extras: tuple[str, ...]) -> Iterator[Requirement]:
    for text in distribution(name).requires or ():
        needed = Requirement(text)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras or ("",)):
            yield needed


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    TARGET.write_text(listed())
