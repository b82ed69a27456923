"""``benchmarks compare``: benchmarks in this checkout and in an earlier commit, by turns.

The earlier commit is checked out into a temporary worktree and run with this environment's packages. Each pair runs
both trees one after the other, in alternating order, so that a machine that becomes slower slows both.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.commands.bench.common import counted
from tidelog_server.commands.bench.report import Report

_CHECKOUT: Final = Path(__file__).resolve().parents[2]
_TIDELOG: Final = "import sys; sys.argv[0] = 'tidelog'; from tidelog_cli import main; main()"
_RATES: Final = ("messages_per_second", "megabytes_per_second")
_LATENCY: Final = "p50_us"
# Ends the names of latencies among the details of a report, as in "create_1_p50_ms".
_LATENCY_DETAIL: Final = "_p50_ms"
# Arguments of the interpreter before the name of a benchmark. In earlier commits, most are commands of `tidelog bench`.
_PROGRAMS: Final = (("-m", "benchmarks"), ("-c", _TIDELOG, "bench"))

# The figures of one run, by the name of the report and of the figure.
Figures = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """Settings of ``benchmarks compare``.

    Attributes:
        commit: Commit with which this checkout is compared.
        benchmarks: Names of benchmarks, of ``python -m benchmarks`` or of ``tidelog bench``; options may follow a name.
        pairs: Number of runs of each tree.
        min_rate: Smallest accepted ratio of a rate of this checkout to that of the commit.
        max_latency: Greatest accepted ratio of a median latency.
    """

    commit: str
    benchmarks: Sequence[str]
    pairs: int
    min_rate: float
    max_latency: float


def measure_compare(folder: Path, settings: CompareSettings) -> Sequence[Report]:
    """Run the benchmarks in both trees by turns; return a report for each report that the benchmarks print.

    Raises:
        CommandError: The commit does not exist or lacks a benchmark, or a benchmark fails.
    """
    pairs: list[tuple[Figures, Figures]] = []
    with (
        _worktree(folder / "commit", settings.commit) as commit,
        counted("runs", 2 * settings.pairs * len(settings.benchmarks)) as advance,
    ):
        trees = {_CHECKOUT: "this checkout", commit: settings.commit}
        programs = {
            (tree, name): program_of(tree, name, of=text)
            for tree, text in trees.items()
            for name in settings.benchmarks
        }
        for number in range(settings.pairs):
            found: dict[Path, dict[tuple[str, str], float]] = {_CHECKOUT: {}, commit: {}}
            for benchmark in settings.benchmarks:
                for tree in (_CHECKOUT, commit)[:: 1 if number % 2 else -1]:
                    found[tree] |= _run(tree, programs[tree, benchmark], folder)
                    advance(1)
            pairs.append((found[_CHECKOUT], found[commit]))
    return list(reports_of(pairs, settings))


def reports_of(pairs: Sequence[tuple[Figures, Figures]], settings: CompareSettings) -> Iterator[Report]:
    """Yield a report for each name in the figures: medians of both trees, and the median ratio of the pairs.

    ``pairs`` has the figures of this checkout and of the commit in each pair. A figure that one tree lacks is omitted.
    """
    common = [key for key in pairs[0][0] if all(key in tree for pair in pairs for tree in pair)]
    for name in dict.fromkeys(name for name, _ in common):
        details: dict[str, float] = {}
        for figure in (figure for each, figure in common if each == name):
            ours = [here[name, figure] for here, _ in pairs]
            theirs = [there[name, figure] for _, there in pairs]
            details[figure] = statistics.median(ours)
            details[f"{figure}_of_the_commit"] = statistics.median(theirs)
            details[f"{figure}_ratio"] = statistics.median(map(float.__truediv__, ours, theirs))
        yield Report(name, {"commit": settings.commit, "pairs": settings.pairs}, details=details)


def missed(reports: Sequence[Report], settings: CompareSettings) -> Sequence[str]:
    """Return a text for each ratio beyond its limit."""
    texts = []
    for report in reports:
        ratios = {
            name.removesuffix("_ratio"): ratio for name, ratio in report.details.items() if name.endswith("_ratio")
        }
        for figure, ratio in ratios.items():
            if figure in _RATES and ratio < settings.min_rate:
                texts.append(f"{report.name}: {figure} has the ratio {ratio:.3f}, expected {settings.min_rate} or more")
            if figure not in _RATES and ratio > settings.max_latency:
                texts.append(
                    f"{report.name}: {figure} has the ratio {ratio:.3f}, expected {settings.max_latency} or less"
                )
    return texts


def program_of(tree: Path, benchmark: str, *, of: str) -> Sequence[str]:
    """Return the arguments of the interpreter that run a benchmark in a tree.

    Raises:
        CommandError: The tree, whose name is ``of``, has no such benchmark.
    """
    for program in _PROGRAMS:
        arguments = (*program, *shlex.split(benchmark))
        asked = _start(tree, (*arguments, "--help"), tree, stderr=subprocess.DEVNULL)
        if asked.returncode == 0:
            return arguments
    raise CommandError(f"{of} has no benchmark '{benchmark}'", ExitCode.USAGE)


@contextmanager
def _worktree(path: Path, commit: str) -> Iterator[Path]:
    _git("worktree", "add", "--detach", str(path), commit)
    try:
        yield path
    finally:
        _git("worktree", "remove", "--force", str(path))


def _git(*arguments: str) -> None:
    result = subprocess.run(("git", "-C", str(_CHECKOUT), *arguments), capture_output=True, text=True, check=False)
    if result.returncode:
        raise CommandError(f"git {' '.join(arguments)}: {result.stderr.strip()}", ExitCode.USAGE)


def _run(tree: Path, program: Sequence[str], folder: Path) -> dict[tuple[str, str], float]:
    """Return the figures that a benchmark prints in a tree."""
    result = _start(tree, (*program, "--json", "--folder", str(folder)), folder)
    if result.returncode:
        raise CommandError(
            f"the benchmark '{shlex.join(program)}' of {tree} ended with the exit code {result.returncode}"
        )
    figures: dict[tuple[str, str], float] = {}
    for line in result.stdout.splitlines():
        figures |= figures_of(json.loads(line))
    return figures


def figures_of(report: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the rates and median latencies of a report, which is a line of a benchmark's output."""
    latencies = {_LATENCY: report["latency_us"]["p50"]} if "latency_us" in report else {}
    details = {name: value for name, value in report.get("details", {}).items() if name.endswith(_LATENCY_DETAIL)}
    figures = {rate: report[rate] for rate in _RATES if rate in report} | latencies | details
    return {(report["name"], figure): float(value) for figure, value in figures.items()}


def _start(
    tree: Path, arguments: Sequence[str], folder: Path, *, stderr: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter to its end with the packages of a tree."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    environment["PYTHONPATH"] = os.pathsep.join(str(tree / part) for part in ("client", "server", "tests"))
    return subprocess.run(
        (sys.executable, "-P", *arguments), env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=stderr,
        text=True, check=False,
    )  # fmt: skip
