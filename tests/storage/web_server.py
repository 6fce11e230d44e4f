"""A web server of objects in memory, which serves parts of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """A web server of objects in memory. ``ranges``: whether it serves parts; ``asked``: the ranges requested."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.ranges = True
        self.after: dict[str, bytes] = {}  # content after the first range beyond the header has been sent

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.do_GET(False)

    def do_GET(self, sends: bool = True) -> None:
        data = self.server.objects.get(self.path)
        asked = self.headers["Range"]
        if data is None:
            self.send_error(404)
            return
        etag = f'"{hash(data)}"'
        if asked and self.server.ranges:
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            part = data[int(begin) : int(end) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{int(begin) + len(part) - 1}/{len(data)}")
            self.server.asked.append(f"{begin}-{end}")
            if self.path in self.server.after and int(begin) > 4096:
                self.server.objects[self.path] = self.server.after[self.path]
        else:
            part = data
            self.send_response(200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", etag)
        self.end_headers()
        if sends:
            self.wfile.write(part)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def serving() -> Iterator[Server]:
    """Context with a server in a thread of this process."""
    found = Server()
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()
