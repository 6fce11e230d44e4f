"""The calls of a site to its wire, and the reports of a wire to its site."""

from __future__ import annotations

from typing import Protocol


class Wire(Protocol):
    """One site's end of a wire. Calls return at once; what arrives is reported to the site's ``Arrivals``.

    A transfer has the number of the op that moves the value, in the graph of this end. A wire between processes
    translates it to the number in the graph of the other end.
    """

    def notify(self, transfer: int, peer: int) -> None:
        """Notify the receiver that a value can be fetched."""
        ...

    def get_into(self, transfer: int, peer: int) -> None:
        """Fetch a value into its place in this site's memory; ``fetched`` reports the end."""
        ...

    def acknowledge(self, transfer: int, peer: int) -> None:
        """Notify the sender that the value has arrived, so that its bytes may be overwritten."""
        ...


class Arrivals(Protocol):
    """The reports of a wire to a site."""

    def noticed(self, transfer: int) -> None:
        """Report that a sender offers a value."""
        ...

    def fetched(self, transfer: int) -> None:
        """Report that a value is in this site's memory."""
        ...

    def acknowledged(self, transfer: int) -> None:
        """Report that a receiver has a value of this site."""
        ...
