"""A wire between sites of one process, whose memories one engine can copy between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from einturnip.sites.wires.protocol import Arrivals

Messages = deque[tuple[int, Callable[[Arrivals], None]]]
"""Messages that have not been delivered: the receiving site, and the call that reports the message to it."""


class LocalWire:
    """One site's end of the wire.

    ``fetch``: starts the op that copies a value, whose end the driver of the run reports to the receiver.
    """

    def __init__(self, messages: Messages, fetch: Callable[[int], None]) -> None:
        self._messages, self._fetch = messages, fetch

    def notify(self, transfer: int, peer: int) -> None:
        """Notify the receiver that a value can be fetched."""
        self._messages.append((peer, lambda site: site.noticed(transfer)))

    def get_into(self, transfer: int, peer: int) -> None:
        """Copy the value; its sender has offered it, because a RECEIVE waits for its NOTICE."""
        self._fetch(transfer)

    def acknowledge(self, transfer: int, peer: int) -> None:
        """Notify the sender that the value has arrived."""
        self._messages.append((peer, lambda site: site.acknowledged(transfer)))
