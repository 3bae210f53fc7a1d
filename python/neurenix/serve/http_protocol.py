"""HTTP's connections with limits on headers, which uvicorn itself does not have."""

from __future__ import annotations

import asyncio
from typing import Any

from neurenix.packages import need

#: Headers of a request have at most so many bytes.
MOST_HEADER = 64 << 10

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def limited(header_s: float) -> Any:
    """uvicorn's protocol on httptools, for requests whose headers come within so many seconds."""
    base = need("uvicorn.protocols.http.httptools_impl", "serving by HTTP").HttpToolsProtocol

    class Limited(base):  # type: ignore[misc, valid-type]
        """Closes connections whose headers are too long or too slow."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._header_bytes = 0
            # A connection that sends nothing at all is slow too.
            self._slow: asyncio.TimerHandle | None = self.loop.call_later(header_s, self._refuse, _TOO_SLOW)

        def data_received(self, data: bytes) -> None:
            if self._slow is None and self._between_requests():
                self._slow = self.loop.call_later(header_s, self._refuse, _TOO_SLOW)
            if self._slow is not None:
                self._header_bytes += len(data)
            super().data_received(data)
            if self._slow is not None and self._header_bytes > MOST_HEADER:
                self._refuse(_TOO_LARGE)

        def _between_requests(self) -> bool:
            return self.cycle is None or bool(self.cycle.response_complete)

        def on_headers_complete(self) -> None:
            self._forget()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _forget(self) -> None:
            self._header_bytes = 0
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None

        def _refuse(self, answer: bytes) -> None:
            self._forget()
            if not self.transport.is_closing():
                self.transport.write(answer)
                self.transport.close()

    return Limited
