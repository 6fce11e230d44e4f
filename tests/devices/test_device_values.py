"""Values of ``--device`` that name several kinds of devices."""

from __future__ import annotations

import pytest

from einturnip.core.errors import BindError
from einturnip.devices.kind import check


@pytest.mark.parametrize("word", ["sim:1,sim", "sim,sim:1", "sim:1,cpu", "cuda:0,cuda:1"])
def test_several_kinds_are_refused_with_the_way_to_name_two_devices(word: str) -> None:
    kind = word.partition(":")[0].partition(",")[0]
    with pytest.raises(BindError, match=f"of one kind, and their numbers follow it once. help: {kind}:0,1"):
        check(word)


@pytest.mark.parametrize("word", ["sim:1,", "sim:x", "sim:", "sim:-1", "abacus+cup"])
def test_other_values_are_no_devices(word: str) -> None:
    with pytest.raises(BindError, match="is not a device"):
        check(word)
