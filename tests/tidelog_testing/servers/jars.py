"""Jars of a server that is tested against, downloaded once by Maven to ``.cache``, and run by Java."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tidelog_testing.parts.missing import missing
from tidelog_testing.servers.processes import ROOT

_WHY_NOT: Final = {
    "java": "Java is not installed, which runs {}. On Debian and Ubuntu: apt-get install openjdk-17-jre-headless",
    "mvn": "Maven is not installed, which downloads {}. On Debian and Ubuntu: apt-get install maven",
}


def jars(name: str, version: str, pom: Path) -> Path:
    """Return the folder with the jars of ``pom``; download them if necessary.

    Without Java, or without Maven if it is needed, the test is skipped; with ``CI=true`` it fails.
    """
    folder = ROOT / ".cache" / name / version
    _need("java", name)
    if folder.exists():
        return folder
    _need("mvn", name)
    partial = folder.with_name(f"{version}.{os.getpid()}")
    command = [
        "mvn", "--quiet", "--batch-mode", "--file", str(pom), "dependency:copy-dependencies",
        f"-DoutputDirectory={partial}", "-DincludeScope=runtime",
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # Another process may have been faster.
    if not folder.exists():
        partial.rename(folder)
    return folder


def _need(program: str, name: str) -> None:
    if shutil.which(program) is None:
        missing(_WHY_NOT[program].format(name.capitalize()))
