"""``einturnip doctor``: what this machine has, measured."""

from __future__ import annotations
