"""The calls of a site to its wire, and the reports of a wire to its site."""

from __future__ import annotations

from typing import Protocol


class Wire(Protocol):
    """One site's end of a wire. Calls return at once; what arrives is reported to the site's ``Arrivals``.

    Transfers are numbered by the op that moves the value: in this site's plan at this end; a wire between processes
    translates that to the peer's number.
    """

    def notify(self, transfer: int, peer: int) -> None:
        """Tell the receiver that a value can be fetched."""
        ...

    def get_into(self, transfer: int, peer: int) -> None:
        """Fetch a value into its place in this site's memory; ``fetched`` reports the end."""
        ...

    def acknowledge(self, transfer: int, peer: int) -> None:
        """Tell the sender that the value has arrived, so that its bytes may be overwritten."""
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
