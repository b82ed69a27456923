"""Sequencers: read-uncommitted messages in, read-committed messages out."""

from tidelog.gazette.sequencer.core import DEFAULT_RING_SIZE, StepSequencer
from tidelog.gazette.sequencer.dequeue import Sequencer
from tidelog.gazette.sequencer.outcomes import Outcome

__all__ = ["DEFAULT_RING_SIZE", "Outcome", "Sequencer", "StepSequencer"]
