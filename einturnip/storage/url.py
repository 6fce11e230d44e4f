"""URLs of objects in remote stores, as users write them."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(path: str) -> bool:
    """Return whether a path names an object in a remote store."""
    return _URL.match(path) is not None


def suffix_of(url: str) -> str:
    """The suffix that names the format of an object, in lower case; a query after it does not count."""
    parts = urlsplit(url)
    return os.path.splitext((parts.netloc + parts.path).rstrip("/"))[1].lower()
