"""The type of a call's context."""

from typing import Any

import grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]
