"""Framings: how messages become bytes of a journal. Those of this package are registered on import."""

from tidelog.gazette.framings.csv_framing import CSV_CONTENT_TYPE_OF_SEED, CSVFraming
from tidelog.gazette.framings.fixed_framing import FixedFraming
from tidelog.gazette.framings.framing import register_alias, register_framing
from tidelog.gazette.framings.json_framing import JSONFraming

register_framing(JSONFraming())
register_framing(CSVFraming())
register_framing(FixedFraming())
register_alias(CSV_CONTENT_TYPE_OF_SEED, CSVFraming())
