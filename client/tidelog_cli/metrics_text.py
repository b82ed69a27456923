"""Reads the text of ``/metrics`` with Prometheus' own parser: names of users are in its labels."""

from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield the name, the labels and the value of each sample.

    Raises:
        ValueError: The text is not that of a server's metrics.
    """
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except (ValueError, IndexError) as error:
        # The parser raises IndexError for some texts that end too early.
        raise ValueError(f"the response is not in the format of Prometheus ({error})") from error


def without_labels(text: str) -> dict[str, float]:
    """Return the values of the samples that have no labels, by name. Raises ValueError as ``samples``."""
    return {name: value for name, labels, value in samples(text) if not labels}
