"""Sites whose failure is hard to report."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest

import einturnip as et
from einturnip.cluster.site_task import take_part

da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.timeout(120)


class FailingEnd:
    """The connections of a site whose run fails at once; ``said`` is what they could send."""

    def __init__(self, error: BaseException, works: bool = True) -> None:
        self.error, self.works, self.said, self.calls = error, works, list[dict[str, Any]](), list[str]()

    def message(self) -> dict[str, Any]:
        raise self.error

    def say(self, state: str, **content: Any) -> None:
        data = msgpack.dumps({"state": state, **content})  # as Dask encodes a message
        if not self.works:
            raise ValueError("no message gets through")
        self.said.append(msgpack.loads(data))

    def is_ending(self) -> bool:
        return False

    def settle(self) -> None:
        self.calls.append("settle")

    def close(self) -> None:
        self.calls.append("close")


class Untold(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")


def test_a_failure_that_cannot_be_encoded_is_reported_without_what_cannot() -> None:
    plain = FailingEnd(ValueError("no such day"))
    assert take_part(plain) == {}  # type: ignore[arg-type]
    (content,) = plain.said
    assert (content["kind"], content["text"], content["lost"]) == ("ValueError", "no such day", False)
    for error, text in ((ValueError("caf\udce9"), "caf\\udce9"), (Untold(), "it has no text")):
        end = FailingEnd(error)
        assert take_part(end) == {}  # type: ignore[arg-type]
        (content,) = end.said
        assert content["kind"] == type(error).__name__ and content["text"].startswith(text)
        assert "the full report of this error failed: " in content["text"]
        assert end.calls == ["settle", "close"]


def test_a_failure_that_nobody_hears_is_not_hidden() -> None:
    end = FailingEnd(RuntimeError("the first"), works=False)
    with pytest.raises(ValueError, match="no message gets through"):
        take_part(end)  # type: ignore[arg-type]
    assert end.calls == ["settle", "close"]


@pytest.mark.slow
def test_a_worker_reports_an_error_whose_text_is_no_unicode(client: Any) -> None:
    def fails(block: Any) -> Any:
        raise ValueError("caf\udce9")

    bad = da.ones((60, 40), chunks=(20, 40)).map_blocks(fails, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(et.StoreError, match=r"worker t(cp|ls)://\S+ on .*ValueError: caf\\udce9 \(the full report"):
        et.einsum("ij->j", bad, client=client)
