"""Check for Java, which Spark needs and pip cannot install."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

MINIMUM_JAVA: Final = 17
_INSTALL: Final = (
    "install it with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), "
    "`dnf install java-17-openjdk-headless` (Fedora) or `brew install openjdk@17` (macOS), or set JAVA_HOME"
)


class JavaMissingError(RuntimeError):
    """No suitable Java was found. The message is one line with the command that installs it."""


def require_java() -> Path:
    """Return the ``java`` that Spark will run: that of JAVA_HOME, else the first on PATH.

    Call it before the first Spark session: without Java, Spark itself prints a page of shell output.

    Raises:
        JavaMissingError: No Java was found, it does not start, or it is older than MINIMUM_JAVA.
    """
    java = _java_path()
    version = _major_version(java)
    if version < MINIMUM_JAVA:
        raise JavaMissingError(f"Spark needs Java {MINIMUM_JAVA} or newer, {java} is Java {version}: {_INSTALL}")
    return java


def _java_path() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        place = f"under JAVA_HOME ({home})" if home else "on PATH"
        raise JavaMissingError(f"Spark needs Java {MINIMUM_JAVA} or newer, and no Java was found {place}: {_INSTALL}")
    return Path(found)


def _major_version(java: Path) -> int:
    """Return 17 for version 17.0.15, and 8 for the old format 1.8.0_292."""
    asked = subprocess.run(
        [str(java), "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    )
    for line in asked.stderr.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "java.specification.version":
            return int(value.strip().removeprefix("1."))
    raise JavaMissingError(f"{java} does not start ({asked.stderr.strip()[:200]}): {_INSTALL}")
