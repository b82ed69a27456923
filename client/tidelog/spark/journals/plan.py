"""Planning of a read of journals: looks them up, and takes one cut over all of them. Runs on the driver."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidelog import ChannelDescription, ChannelNotFoundError, VchannelDescription
from tidelog.gazette import JournalSpec, ListRequest, MissingJournalError
from tidelog.spark.errors import OptionError
from tidelog.spark.journals.frames import check_content_type
from tidelog.spark.journals.options import JournalOptions
from tidelog.spark.journals.partition import JournalPartition
from tidelog.spark.owners import Owners
from tidelog.spark.patience import patiently
from tidelog.spark.read.plan import MAX_VCHANNELS, cut_of, naming_the_cut, raise_loss
from tidelog.spark.ticks import END_OF_TIME

_HELD_BYTES: Final = 64 << 20
_HELD_MESSAGES: Final = (16, 8_192)


def plan_journals(options: JournalOptions) -> list[JournalPartition]:
    """Return one partition for each journal that the options select, in order of name, all with the same cut.

    Raises:
        MissingJournalError: The journal does not exist.
        UnknownContentTypeError: Journals of this content type cannot be read.
        OptionError: No journal matches the selector, or too many do.
        ChannelNotFoundError: A journal was deleted during planning.
        TidelogError: The server cannot be reached, or the cut lies in the future.
    """
    return patiently(options.connection, lambda: _partitions(options))


def _partitions(options: JournalOptions) -> list[JournalPartition]:
    with Owners(options.connection) as owners, naming_the_cut(options):
        specs = _selected(owners, options)
        with_channels = replace(options, channels=tuple(each.channel for each in specs))
        try:
            channels = owners.describe(with_channels.channels)
            ends = _ends(owners, with_channels, [channel.vchannels[0] for channel in channels])
        except ChannelNotFoundError as error:
            gone = next((each.name for each in specs if each.channel == error.name), error.name)
            raise ChannelNotFoundError(f"the journal '{gone}' was deleted during planning: read again") from error
        return [
            _partition(spec, channel, ends[channel.vchannels[0].name], with_channels, owners)
            for spec, channel in zip(specs, channels, strict=True)
        ]


def _selected(owners: Owners, options: JournalOptions) -> Sequence[JournalSpec]:
    specs = [each for each in owners.journals(ListRequest(options.selector)) if options.journal in {"", each.name}]
    if not specs and options.journal:
        text = (
            f"named journal does not exist ({options.journal}): correct the option 'journal', or create the journal "
            f"with `tidelog journal apply {options.journal}`"
        )
        raise MissingJournalError(text, values={"journal": options.journal})
    if not specs:
        raise OptionError(
            f"the option 'journalSelector' is {options.selector_text!r}, which matches no journal: correct it, or "
            "create a journal with `tidelog journal apply` first"
        )
    if len(specs) > MAX_VCHANNELS:
        raise OptionError(
            f"the option 'journalSelector' matches {len(specs)} journals, but one cut has at most {MAX_VCHANNELS}: "
            "read fewer journals at once"
        )
    for spec in specs:
        check_content_type(spec)
    return specs


def _ends(owners: Owners, options: JournalOptions, vchannels: Sequence[VchannelDescription]) -> Mapping[str, int]:
    """Return the exclusive end of each vchannel: the cut, or a server transaction's first tick if it spans the cut."""
    cut = options.end_tick or END_OF_TIME
    if not options.is_cut:
        cut = min(cut, cut_of(owners, vchannels))
    ends: dict[str, int] = {}
    # The second call waits until no node adds anything before the cut of the others.
    for client, part in owners.by_node(vchannels):
        names = [each.name for each in part]
        ends |= dict.fromkeys(names, min(cut, int(client.plan_scan(names, end_tick=cut).end_tick)))
    return ends


def _partition(
    spec: JournalSpec, channel: ChannelDescription, end_tick: int, options: JournalOptions, owners: Owners
) -> JournalPartition:
    vchannel, created_tick = channel.vchannels[0], int(channel.created_tick)
    if options.is_cut and created_tick >= end_tick:
        text = f"{options.cut} lies before the creation of the journal '{spec.name}' at tick {created_tick}"
        raise_loss(text, vchannel.name, end_tick, created_tick, options)
    return JournalPartition(
        connection=owners.connection_of(vchannel.name),
        channel=spec.channel,
        index=0,
        begin_tick=max(int(vchannel.trim_tick), created_tick),
        end_tick=end_tick,
        types=(),
        fail_on_data_loss=options.fail_on_data_loss,
        created_tick=created_tick,
        fetch_bytes=options.fetch_bytes,
        journal=spec.name,
        content_type=spec.content_type,
        is_committed=options.is_committed,
        uuid_field=options.uuid_field,
        uuid_field_number=options.uuid_field_number,
        max_held_messages=options.max_held_messages or held_messages(vchannel.messages, vchannel.bytes),
    )


def held_messages(messages: int, size_bytes: int) -> int:
    """Return how many messages of average size take 64 MiB, within 16 to 8,192."""
    least, most = _HELD_MESSAGES
    return min(most, max(least, _HELD_BYTES * messages // max(size_bytes, 1) if messages else most))
