"""WalService: the methods that are neither appends nor scans."""

from tidelog.v1 import wal_service_pb2 as pb
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.vchannels import Vchannels
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import MAX_TICKS_PER_REQUEST
from tidelog_server.core.message_checks import check_within
from tidelog_server.core.names import is_system_channel
from tidelog_server.core.ticks import MAX_PHYSICAL_MS, MAX_TICK
from tidelog_server.log.node import LogNode
from tidelog_server.log.tick_lead import allocate_for_caller
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.services.options import check_opened_id
from tidelog_server.security.access import current_access, current_tenant


class WalService:
    """Handlers of WalService: the data plane."""

    def __init__(self, directory: Directory, vchannels: Vchannels, node: LogNode) -> None:
        self._directory = directory
        self._vchannels = vchannels
        self._node = node

    async def get_wal_name(self, _request: pb.GetWalNameRequest, _: Context) -> pb.GetWalNameResponse:
        """Return the name of the log store."""
        return pb.GetWalNameResponse(wal_name=self._node.store.wal_name)

    async def allocate_ticks(self, request: pb.AllocateTicksRequest, _: Context) -> pb.AllocateTicksResponse:
        """Allocate ticks."""
        count = request.count or 1
        check_within(count, 1, MAX_TICKS_PER_REQUEST, "count")
        self._node.admission.check_storage()
        if (access := current_access()) is not None:
            access.quota.charge_ticks(count)
        first_tick = await allocate_for_caller(self._node.shared.oracle, self._node.shared.clock, count)
        return pb.AllocateTicksResponse(first_tick=first_tick, count=count)

    async def get_latest_mvcc_tick(
        self, request: pb.GetLatestMvccTickRequest, _context: Context
    ) -> pb.GetLatestMvccTickResponse:
        """Return the tick of the last acknowledged message."""
        _log, vchannel = self._directory.find_to_read(request.vchannel)
        return pb.GetLatestMvccTickResponse(mvcc_tick=vchannel.durable_tick)

    async def open_producer(self, request: pb.OpenProducerRequest, _: Context) -> pb.OpenProducerResponse:
        """Open a producer, and fence its previous epoch."""
        windows = await self._vchannels.open_producer(
            request.vchannel, check_opened_id(request.producer_id), current_tenant(),
            accept_forgotten=request.accept_forgotten,
        )  # fmt: skip
        states = [
            pb.ProducerVchannel(
                last_sequence=window.last_sequence, last_tick=window.last_tick, last_call=window.last_call
            )
            for window in windows
        ]
        return pb.OpenProducerResponse(
            epoch=windows[0].epoch, last_sequence=windows[0].last_sequence, last_tick=windows[0].last_tick,
            vchannels=() if "/" in request.vchannel else states,
        )  # fmt: skip

    async def set_fencing_token(self, request: pb.SetFencingTokenRequest, _: Context) -> pb.SetFencingTokenResponse:
        """Fence clients that append with an older token."""
        if not request.fencing_token:
            raise InvalidRequestError("the fencing token is 0: expected 1 or greater", field="fencing_token")
        await self._vchannels.fence(request.vchannel, request.fencing_token)
        return pb.SetFencingTokenResponse(fencing_token=request.fencing_token)

    async def trim(self, request: pb.TrimRequest, _: Context) -> pb.TrimResponse:
        """Trim a prefix of a vchannel."""
        name, access = request.vchannel, current_access()
        # If authentication is off, calls are not audited, so the audit log must not be trimmed.
        is_system = access is not None and is_system_channel(name.partition("/")[0])
        match request.WhichOneof("until"):
            case "before_tick" if request.before_tick <= MAX_TICK:
                first = await self._vchannels.trim(name, before_tick=request.before_tick, is_system=is_system)
            case "before_time_ms" if request.before_time_ms <= MAX_PHYSICAL_MS:
                first = await self._vchannels.trim(name, before_ms=request.before_time_ms, is_system=is_system)
            case "all" if is_system:
                raise InvalidRequestError(
                    f"'{name}' cannot be trimmed as a whole: set before_tick or before_time_ms", field="until"
                )
            case "all":
                first = await self._vchannels.trim(name)
            case None:
                raise InvalidRequestError("`until` is not set: set before_tick, before_time_ms or all", field="until")
            case field:
                raise InvalidRequestError(f"{field} is beyond the greatest possible tick", field=field)
        return pb.TrimResponse(first_available_tick=first)
