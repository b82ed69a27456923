"""The benchmarks run, clean up after themselves, and report in the documented form.

Method: each with very few messages in a process of its own. The figures mean nothing here.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.attacks import ATTACKS
from benchmarks.compare import CompareSettings, figures_of, missed, program_of, reports_of
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.log.tick_lead import MAX_TICK_LEAD_MS
from tidelog_testing.loads.workload import until
from tidelog_testing.servers.commands import COMMAND, json_output
from tidelog_testing.servers.disk import disk_bytes
from tidelog_testing.servers.processes import ROOT

FIGURES = {"messages_per_second", "megabytes_per_second"}


COMMANDS = [*COMMAND, "bench"]
BENCHMARKS = [sys.executable, "-m", "benchmarks"]


def bench(
    folder: Path, *arguments: str, program: Sequence[str] = COMMANDS, timeout_s: float = 110
) -> list[dict[str, Any]]:
    return json_output([*program, *arguments, "--json"], folder, timeout_s)


benchmark = partial(bench, program=BENCHMARKS)


@pytest.mark.parametrize(
    ("program", "name", "arguments"),
    [
        (COMMANDS, "tidelog", ("append", "--endpoint", "127.0.0.1:1")),
        (COMMANDS, "tidelog", ("latency", "--endpoint", "127.0.0.1:1")),
        (BENCHMARKS, "benchmarks", ("txn", "--endpoint", "127.0.0.1:1")),
        (BENCHMARKS, "benchmarks", ("msgstream-pulsar", "--pulsar", "pulsar://127.0.0.1:1")),
    ],
)
def test_an_unreachable_server_is_reported_in_one_line(
    tmp_path: Path, program: Sequence[str], name: str, arguments: Sequence[str]
) -> None:
    ended = subprocess.run(
        [*program, *arguments], capture_output=True, text=True, env=child_environment(), cwd=tmp_path, check=False
    )
    assert ended.returncode == ExitCode.UNAVAILABLE, ended.stderr
    [line] = [line for line in ended.stderr.splitlines() if "127.0.0.1:1" in line]
    assert line.startswith(f"{name}: ")
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "shell"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        # As a background job of a script.
        (signal.SIGTERM, ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGTERM in the background"],
)
@pytest.mark.parametrize("wal_bytes", [0, 1 << 20], ids=["during the start", "after it"])
def test_a_signal_ends_the_server_and_removes_the_folder(
    tmp_path: Path, number: signal.Signals, shell: Sequence[str], wal_bytes: int
) -> None:
    # More messages than the test waits for.
    arguments = [*shell, *COMMANDS, "append", "--messages", "2000000000", "--json"]
    children: list[psutil.Process] = []

    def is_so_far() -> bool:
        servers = list(tmp_path.glob("tidelog-bench-*/server"))
        return servers != [] and wal_bytes <= disk_bytes(servers[0], ".log")

    with subprocess.Popen(arguments, stderr=subprocess.PIPE, env=child_environment(), cwd=tmp_path) as process:
        try:
            asyncio.run(until(is_so_far, 60.0, f"the WAL has {wal_bytes} bytes"))
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
            assert process.returncode == 128 + signal.SIGINT, stderr
            assert children
            assert psutil.wait_procs(children, timeout=0)[1] == []
        finally:
            process.kill()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
    assert list(tmp_path.iterdir()) == []


def test_append_reports_rates_memory_and_floor(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "append", "--messages", "20000", "--vchannels", "2", "--stalled-follower")

    assert report["name"] == "append"
    assert report["settings"]["messages"] == 20_000
    assert report.keys() >= FIGURES | {"server_rss_bytes", "floor", "ratio"}
    assert report["floor"].keys() == {"name", "messages_per_second"}
    assert all(0 < report[figure] for figure in FIGURES | {"server_rss_bytes", "ratio"})
    assert report["details"]["vchannels_to_one"] > 0


def test_append_measures_messages_with_keys(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "append", "--messages", "20000", "--vchannels", "4", "--keys")

    assert report["settings"]["keys"]
    assert report["details"]["vchannels_to_one"] > 0


def test_single_appends_report_latencies_too(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "append", "--single", "--concurrency", "8", "--messages", "200")

    assert report["latency_us"].keys() == {"p50", "p99", "p999"}
    assert report["settings"]["producers"] == 8


def test_consumers_are_compared_with_a_scan(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "consume", "--messages", "40000", "--members", "2", "--vchannels", "2")

    assert report["settings"]["members"] == 2
    assert 0 < report["messages_per_second"]
    assert report["floor"].keys() == {"name", "messages_per_second"}
    assert 0 < report["details"]["commits_per_second"]


def test_cycles_and_fetches_of_a_mailbox_are_compared_with_appends(tmp_path: Path) -> None:
    batches, workers, lone, waiting = bench(
        tmp_path, "mailbox", "--cycles", "2000", "--worker-cycles", "640", "--fetches", "40", "--waiting", "3000"
    )

    assert batches["floor"].keys() == {"name", "messages_per_second"}
    assert all(0 < batches[figure] for figure in ("messages_per_second", "ratio"))
    assert 0 < workers["messages_per_second"]
    assert workers["settings"]["workers"] == 64
    for report in (lone, waiting):
        assert report["floor"].keys() == {"name", "latency_us"}
        assert all(0 < report[figure] for figure in ("ratio", "server_rss_bytes"))
    assert 0 < waiting["details"]["server_memory_with_messages_mb"]


def test_restarts_with_mailboxes_are_measured(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "mailbox-restart", "--mailboxes", "3", "--messages", "20")

    details = report["details"]
    for end in ("stopped", "killed"):
        assert 0 < details[f"ready_after_filled_{end}_s"] <= details[f"loaded_after_filled_{end}_s"]
        assert 0 < details[f"ready_{end}_filled_to_empty"]


def test_a_sequencer_is_compared_with_the_decoder_alone(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "sequencer", "--messages", "2000", "--rounds", "1")

    assert report["details"].keys() >= {"outside_ns", "in_transactions_ns", "json_loads_ns"}
    assert 0 < report["ratio"]


def test_messages_of_journals_are_compared_with_encoder_and_decoder_alone(tmp_path: Path) -> None:
    publish, read = benchmark(tmp_path, "gazette", "--messages", "9000", "--per-transaction", "300", "--codec", "json")

    assert [publish["name"], read["name"]] == ["gazette publish", "gazette read"]
    assert publish["details"].keys() >= {"cpu_ratio", "transactions_messages_per_second", "transactions_ratio"}
    assert read["details"].keys() >= {"cpu_ratio", "transactions_messages_per_second", "transactions_ratio"}
    for report in (publish, read):
        assert report["settings"]["codec"] == "json"
        assert report["floor"].keys() == {"name", "messages_per_second"}
        assert all(0 < report[figure] for figure in FIGURES | {"server_rss_bytes", "ratio"})
        assert all(0 < figure for name, figure in report["details"].items() if name != "stolen_cpu_share")


def test_rebalancing_members_lose_and_double_nothing(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "rebalance", "--seconds", "4", "--rate", "500", "--members", "2", "--vchannels", "4")

    details = report["details"]
    assert details["lost"] == details["doubled"] == 0
    assert 0 < details["kills"]
    assert 0 < details["produced"]


def test_transactions_are_compared_with_plain_appends(tmp_path: Path) -> None:
    *reports, large = benchmark(tmp_path, "txn", "--transactions", "400", "--concurrency", "8", "--large-mib", "20")

    assert large["settings"]["mebibytes"] == 20
    assert 0 < large["details"]["commit_milliseconds"]
    assert 0 < large["server_rss_bytes"]
    assert [report["settings"]["vchannels"] for report in reports] == [1, 4]
    for report in reports:
        assert report["latency_us"].keys() == {"p50", "p99", "p999"}
        rates = report["details"]
        assert rates["commits_per_second"] * 10 == pytest.approx(report["messages_per_second"], rel=0.01)
        assert 0 < report["ratio"]


def test_broadcasts_are_compared_with_appends(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "broadcast", "--broadcasts", "20", "--vchannels", "8")

    assert report["settings"]["vchannels"] == 8
    assert report["ratio"] == pytest.approx(report["latency_us"]["p50"] / report["floor"]["latency_us"], rel=0.01)
    assert 0 < report["details"]["ack_of_all_p50_us"]


def test_packs_are_equal_and_their_delay_is_told(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "msgstream", "--intervals", "10", "--interval-ms", "50")

    figures = report["details"]
    assert figures["packs_equal_on_both"] == figures["packs_equal_when_read_again"] == 1
    assert 0 < figures["delay_p50_intervals"] <= figures["delay_p99_intervals"] <= figures["delay_max_intervals"]
    assert 0 < figures["packs_with_messages"] <= 10


def test_latency_is_compared_with_echo_and_sync(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "latency", "--messages", "40")

    assert 0 < report["latency_us"]["p50"] <= report["latency_us"]["p99"] <= report["latency_us"]["p999"]
    assert report["floor"].keys() == {"name", "latency_us"}
    assert report["ratio"] == pytest.approx(report["latency_us"]["p50"] / report["floor"]["latency_us"], rel=0.01)


def test_the_stages_of_lone_operations_add_up(tmp_path: Path) -> None:
    reports = {
        each["name"].removeprefix("budget, "): each for each in benchmark(tmp_path, "budget", "--operations", "40")
    }

    assert list(reports) == [
        "append", "64 appends at once", "transaction of 10 messages on 2 vchannels", "broadcast to 2 vchannels",
        "delivery to a follower",
    ]  # fmt: skip
    for name in list(reports)[:4]:
        # An append of the server itself may come between two points.
        assert reports[name]["settings"]["with_all_points"] >= 35
        stages = [value for stage, value in reports[name]["details"].items() if stage.endswith("p50 µs")]
        # Medians of stages do not add up to that of the operations; for each operation the stages do, see
        # unit/cli/test_budget.
        assert 0 < min(stages)
        assert max(stages) < reports[name]["latency_us"]["p99"]
    assert reports["append"]["ratio"] == 1
    assert all(0 < each["ratio"] for each in reports.values())


def test_a_checkout_is_compared_with_a_commit_by_turns(tmp_path: Path) -> None:
    limits = ("--pairs", "1", "--min-rate", "0", "--max-latency", "1000000")
    [report] = benchmark(tmp_path, "compare", "HEAD", "latency --messages 500", *limits)

    assert report["settings"] == {"commit": "HEAD", "pairs": 1}
    for figure in ("messages_per_second", "p50_us"):
        ours, theirs = report["details"][figure], report["details"][f"{figure}_of_the_commit"]
        assert report["details"][f"{figure}_ratio"] == pytest.approx(ours / theirs, abs=0.002)


def test_a_comparison_is_of_medians_over_pairs_and_names_what_misses_its_limit() -> None:
    settings = CompareSettings("HEAD", ["scan"], pairs=3, min_rate=0.97, max_latency=1.03)
    rates = [(90.0, 100.0), (300.0, 200.0), (95.0, 100.0)]
    pairs = [({("scan", "messages_per_second"): here, ("new", "p50_us"): 1.0},
              {("scan", "messages_per_second"): there}) for here, there in rates]  # fmt: skip

    [report] = reports_of(pairs, settings)

    assert report.details == {
        "messages_per_second": 95.0, "messages_per_second_of_the_commit": 100.0, "messages_per_second_ratio": 0.95,
    }  # fmt: skip
    [text] = missed([report], settings)
    assert text == "scan: messages_per_second has the ratio 0.950, expected 0.97 or more"
    assert missed([report], replace(settings, min_rate=0.95)) == []


def test_a_benchmark_is_run_by_the_program_that_a_tree_has_it_in() -> None:
    assert program_of(ROOT, "channels", of="this checkout")[:2] == ("-m", "benchmarks")
    assert program_of(ROOT, "txn", of="this checkout")[:2] == ("-m", "benchmarks")
    assert program_of(ROOT, "latency", of="this checkout")[-2:] == ("bench", "latency")
    with pytest.raises(CommandError, match="'b2ad59b' has no benchmark 'charm'"):
        program_of(ROOT, "charm", of="'b2ad59b'")


def test_rates_and_median_latencies_are_compared() -> None:
    report = {
        "name": "channels", "messages_per_second": 5, "latency_us": {"p50": 7, "p99": 9}, "ratio": 2,
        "details": {"create_1_p50_ms": 1.5, "create_1_p99_ms": 3, "restart_empty_killed_s": 2},
    }  # fmt: skip
    expected = {"messages_per_second": 5.0, "p50_us": 7.0, "create_1_p50_ms": 1.5}
    assert figures_of(report) == {("channels", figure): value for figure, value in expected.items()}
    settings = CompareSettings("HEAD", ["channels"], pairs=1, min_rate=0.97, max_latency=1.03)
    [compared] = reports_of(
        [({("channels", "create_1_p50_ms"): 3.0}, {("channels", "create_1_p50_ms"): 1.5})], settings
    )
    assert missed([compared], settings) == ["channels: create_1_p50_ms has the ratio 2.000, expected 1.03 or less"]


def test_scan_reports_bytes_objects_and_raw_batches(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "scan", "--messages", "20000")

    assert report["settings"]["messages_per_second_of"] == "bytes objects"
    assert report["settings"]["megabytes_per_second_of"] == "raw batches"
    assert report["floor"].keys() == {"name", "megabytes_per_second"}
    assert all(0 < report[figure] for figure in FIGURES | {"ratio"})


def test_many_channels_are_timed_and_survive_restarts(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "channels", "--channels", "200", "--messages", "0")

    details = report["details"]
    for operation in ("create_1", "create_100", "describe_1", "describe_100", "alter_1", "list_page", "list_prefix"):
        assert 0 < details[f"{operation}_p50_ms"] <= details[f"{operation}_p99_ms"]
    assert all(0 < details[f"restart_empty_{end}_s"] for end in ("killed", "stopped"))
    assert 0 < details["rss_bytes_of_channels"] <= report["server_rss_bytes"]


def test_a_backup_is_measured_and_its_copy_compared(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "backup", "--gigabytes", "0.02", "--plain-s", "0.3", "--rounds", "1", "--rate", "0")

    assert report["floor"].keys() == {"name", "megabytes_per_second"}
    assert report["details"]["compared_messages"] >= 20_000
    assert report["details"]["backup_bytes"] >= 20_000_000
    assert 0 < report["ratio"]


def test_retention_is_measured_with_and_without(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "retention", "--seconds", "2", "--cap", "16MiB")

    details = report["details"]
    assert 16 << 20 <= details["kept_bytes"] < details["appended_bytes"]
    assert 0 < details["disk_mean_to_cap"] <= details["disk_max_to_cap"]
    assert report["ratio"] == pytest.approx(
        report["megabytes_per_second"] / report["floor"]["megabytes_per_second"], rel=0.01
    )


@pytest.mark.soak
def test_ten_thousand_channels_stay_quick_and_small(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "channels", "--messages", "10", timeout_s=600)

    details = report["details"]
    assert all(details[name] < 50 for name in details if name.endswith("_p99_ms"))
    assert report["server_rss_bytes"] < 600_000_000
    assert all(details[name] < 5 for name in details if name.startswith("restart_"))


@pytest.mark.soak
def test_five_minutes_under_load_stay_below_one_and_a_half_times_the_cap(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "retention", timeout_s=600)

    assert report["details"]["disk_max_to_cap"] < 1.5


@pytest.mark.spark
def test_spark_reads_and_writes_the_log_and_parquet(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "spark", "--messages", "10000", timeout_s=240)

    assert report["name"] == "spark"
    assert 0 < report["ratio"]
    assert 0 < report["details"]["write_ratio"]
    assert 0 < report["details"]["python_worker_peak_bytes"]


@pytest.mark.spark
def test_a_stream_reads_what_was_appended(tmp_path: Path) -> None:
    [report] = benchmark(
        tmp_path, "stream", "--rate", "5000", "--seconds", "3", "--trigger", "0.5", "--vchannels", "2", timeout_s=240
    )

    details = report["details"]
    assert details["rows_read"] == details["rows_appended"] == 15_000
    assert 0 < details["delay_p50_s"] < 60


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_twenty_million_messages_do_not_age_the_server(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "append", "--messages", "20000000", "--stalled-follower", timeout_s=900)

    assert report["server_rss_bytes"] < 500_000_000
    assert 0.8 <= report["details"]["last_tenth_to_first"]
    assert report["details"]["seek_p50_ms"] < 10
    assert report["details"]["restart_s"] < 3


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_bench_security_compares_with_plaintext_and_with_no_attack(tmp_path: Path) -> None:
    tls, siege, with_certificates, *attacks = benchmark(
        tmp_path, "security", "--messages", "16000", "--streams", "100", "--seconds", "2", timeout_s=1_700
    )
    assert tls["name"] == "security tls"
    assert tls["ratio"] > 0
    assert tls["details"]["p50_to_plaintext"] > 0
    assert siege["name"] == "security siege"
    assert with_certificates["name"] == "security siege, certificates"
    for report in (siege, with_certificates):
        assert report["details"]["idle_streams_standing"] == 100
        assert min(report["details"][f"hostile_{kind}"] for kind in ("malformed", "oversize", "resets")) > 0
        assert report["server_rss_bytes"] < 1 << 30
    assert {report["name"] for report in attacks} == {f"security attack {attack.name}" for attack in ATTACKS}


def test_an_attack_is_compared_with_a_process_that_burns_the_same(tmp_path: Path) -> None:
    [report] = benchmark(tmp_path, "security", "--attack", "malformed-http", "--seconds", "2", "--rounds", "1")

    assert report["name"] == "security attack malformed-http"
    assert report["floor"].keys() == {"name", "messages_per_second"}
    assert report["ratio"] > 0
    details = report["details"]
    assert details["hostile_requests"] > 0
    assert details["attacker_cpu_share"] > 0
    for wrong in ("lost", "doubled", "restarted_lost", "restarted_doubled", "failed_appends"):
        assert details[wrong] == 0
    assert report["server_rss_bytes"] < 1 << 30


@pytest.mark.parametrize(
    ("attack", "attacked", "bounds"),
    [
        # Refusals are recorded in part, the clock stays where it is, and fresh tokens are taken.
        ("denials", "denied", {"recorded_denials": 100, "audit_bytes": 100_000}),
        ("ticks", "taken", {"tick_lead_ms": MAX_TICK_LEAD_MS}),
        ("bad-signatures", "resource_exhausted", {"fresh_tokens_refused": 0}),
    ],
)
def test_an_attack_of_a_principal_takes_nothing_from_another(
    tmp_path: Path, attack: str, attacked: str, bounds: dict[str, float]
) -> None:
    [report] = benchmark(tmp_path, "security", "--attack", attack, "--seconds", "2", "--rounds", "1")

    details = report["details"]
    assert details[f"hostile_{attacked}"] > 0
    assert {name: details[name] for name in bounds if details[name] > bounds[name]} == {}
    for wrong in ("lost", "doubled", "restarted_lost", "restarted_doubled", "failed_appends"):
        assert details[wrong] == 0
    assert report["server_rss_bytes"] < 1 << 30


def test_a_flood_of_frames_loses_and_doubles_nothing(tmp_path: Path) -> None:
    # Not how many appends fail: the flood stops other clients (SECURITY.md, "Floods of frames").
    [report] = benchmark(tmp_path, "security", "--attack", "http2-frames", "--seconds", "1", "--rounds", "1")

    details = report["details"]
    assert details["hostile_frames"] > 0
    for wrong in ("lost", "doubled", "restarted_lost", "restarted_doubled"):
        assert details[wrong] == 0
    assert report["server_rss_bytes"] < 1 << 30


def test_an_unknown_attack_is_refused_by_its_name(tmp_path: Path) -> None:
    process = subprocess.run(
        [*BENCHMARKS, "security", "--attack", "charm"],
        capture_output=True, text=True, env=child_environment(), cwd=tmp_path, check=False,
    )  # fmt: skip
    assert process.returncode == 2
    assert "'charm'" in process.stderr
    assert "metrics-polls" in process.stderr
