"""The port of the process that begins a run, which takes messages of plain values only.

Dask unpickles parts of a message as it arrives, before a handler can see who has sent it; ``deserialize=False`` does so
for some parts only. Whoever reaches such a port can run code in its process. Here a message with such a part ends its
connection.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
from distributed.comm import CommClosedError
from distributed.comm.tcp import TCP, TLS, TCPListener, TLSListener
from distributed.protocol.utils import msgpack_opts, unpack_frames
from tornado.iostream import StreamClosedError

_COUNT = struct.Struct("Q")
_DASK_KEYS = frozenset({"__Serialized__", "__Pickled__", "__Enum__", "__Set__"})


class _PlainMessages(TCP):  # type: ignore[misc]
    """A connection whose incoming messages are numbers, texts, bytes, and lists and dicts of these."""

    async def read(self, deserializers: Any = None) -> Any:
        """Return the next message.

        Raises:
            CommClosedError: the connection has ended, or the message is damaged or has other parts.
        """
        if self.stream is None:
            raise CommClosedError
        try:
            (count,) = _COUNT.unpack(await self.stream.read_bytes(_COUNT.size))
            (frame,), following = unpack_frames(await self.stream.read_bytes(count), partial=True)
            if following:
                raise ValueError("a message of several frames")
            return msgpack.loads(frame, object_hook=_plain, use_list=False, **msgpack_opts)
        except BaseException as error:
            self.abort()
            if isinstance(error, StreamClosedError | ValueError | struct.error | AssertionError):
                raise CommClosedError(f"in {self}: {error}") from error
            raise


class _PlainTLS(_PlainMessages, TLS):  # type: ignore[misc]
    """The same over TLS."""


class _Listener(TCPListener):  # type: ignore[misc]
    comm_class = _PlainMessages


class _ListenerTLS(TLSListener):  # type: ignore[misc]
    comm_class = _PlainTLS


async def listen(protocol: str, host: str, handler: Callable[[Any], Awaitable[None]], **arguments: Any) -> Any:
    """Return a listener at a free port of a host, whose connections ``handler`` takes."""
    listener = (_ListenerTLS if protocol == "tls" else _Listener)(f"{host}:0", handler, deserialize=False, **arguments)
    await listener.start()
    return listener


def _plain(found: dict[Any, Any]) -> dict[Any, Any]:
    """Refuse the dicts that Dask writes in place of values of other types."""
    if not _DASK_KEYS.isdisjoint(found):
        raise ValueError("a message with values that are not plain")
    return found
