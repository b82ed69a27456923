"""The list of licences is that of the pinned packages, and what the image contains may be shipped with it."""

import json
import re
import subprocess
import sys
from functools import cache

from tidy.tree import ROOT

PROGRAM = """
import json, sys
from importlib.metadata import distribution
sys.path.insert(0, sys.argv[1])
import make_licences
stated = {name: make_licences.licence_of(distribution(name)) for name in make_licences.image_packages()}
print(json.dumps([make_licences.listed(), stated]))
"""

# A package under one of these needs no more than its text, which it contains. Those of the LGPL and of the MPL are
# installed as their authors publish them, each in files of its own.
ALLOWED = re.compile(
    r"0BSD|(3-Clause )?BSD( [23]-Clause)?( License)?|BSD-[23]-Clause|Apache([ -]2\.0| Software License)?|CC0-1\.0|ISC"
    r"( License( \(ISCL\))?)?|LGPL-2\.1-or-later|MIT( License)?|MIT-0|MPL-2\.0|PSF-2\.0|Zlib"
)


@cache
def made() -> tuple[str, dict[str, str]]:
    """Return the list that the tool makes, and the licences of the image's packages."""
    command = [sys.executable, "-c", PROGRAM, str(ROOT / "tools")]
    listed, stated = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=240).stdout)
    return listed, stated


def test_the_list_is_that_of_the_pinned_packages() -> None:
    assert (ROOT / "THIRD_PARTY_LICENCES.md").read_text() == made()[0], "run tools/make_licences.py"


def test_the_image_contains_no_package_under_another_kind_of_licence() -> None:
    others = {
        name: text
        for name, text in made()[1].items()
        if not all(ALLOWED.fullmatch(part) for part in re.split(r" (?:AND|OR) ", text))
    }
    assert others == {}


def test_the_list_is_shipped() -> None:
    assert "!THIRD_PARTY_LICENCES.md" in (ROOT / ".dockerignore").read_text().splitlines()
    assert '"THIRD_PARTY_LICENCES.md"' in (ROOT / "pyproject.toml").read_text()
