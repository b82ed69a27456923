from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TokenDescription(_message.Message):
    __slots__ = ("token_id", "description", "grants", "created_time_ms", "expires_time_ms", "revoked_time_ms", "created_by")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    description: str
    grants: _containers.RepeatedScalarFieldContainer[str]
    created_time_ms: int
    expires_time_ms: int
    revoked_time_ms: int
    created_by: str
    def __init__(self, token_id: _Optional[str] = ..., description: _Optional[str] = ..., grants: _Optional[_Iterable[str]] = ..., created_time_ms: _Optional[int] = ..., expires_time_ms: _Optional[int] = ..., revoked_time_ms: _Optional[int] = ..., created_by: _Optional[str] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("description", "grants", "lifetime_ms")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    description: str
    grants: _containers.RepeatedScalarFieldContainer[str]
    lifetime_ms: int
    def __init__(self, description: _Optional[str] = ..., grants: _Optional[_Iterable[str]] = ..., lifetime_ms: _Optional[int] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("token", "description")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    token: str
    description: TokenDescription
    def __init__(self, token: _Optional[str] = ..., description: _Optional[_Union[TokenDescription, _Mapping]] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ("all", "page_size", "page_token")
    ALL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    all: bool
    page_size: int
    page_token: str
    def __init__(self, all: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens", "next_page_token")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenDescription]
    next_page_token: str
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenDescription, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: TokenDescription
    def __init__(self, description: _Optional[_Union[TokenDescription, _Mapping]] = ...) -> None: ...
