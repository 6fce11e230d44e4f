"""Messages of strangers to the port of the calling process: they run no code there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import einturnip as et
from einturnip.sites.wires.dask_cluster import WorkerConnections

pytestmark = pytest.mark.timeout(120)
TEXT = "input A : f64[n,n]\nC[i,j] = A[i,k] * A[k,j]\noutput C\n"


class _Code:
    """A value whose unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("kind", ["Serialize", "ToPickle"])
def test_the_port_of_the_calling_process_unpickles_nothing(client: Any, tmp_path: Path, kind: str) -> None:
    from distributed.core import connect
    from distributed.protocol.serialize import Serialize, ToPickle

    listen, answers = WorkerConnections._listen, list[Any]()

    async def attacked(connections: WorkerConnections) -> str:
        address = await listen(connections)
        value = {"Serialize": Serialize, "ToPickle": ToPickle}[kind](_Code(tmp_path / "made"))
        for message in ({"op": "einturnip_get", "run": "r", "token": "t", "value": value}, {"op": "identity"}):
            comm = await connect(address, **client.connection_args)
            await comm.write({**message, "reply": True})
            try:
                answers.append(await comm.read())
            except OSError as error:
                answers.append(error)
            comm.abort()
        return address

    a = np.arange(900.0).reshape(30, 30)
    with mock.patch.object(WorkerConnections, "_listen", attacked):
        found = et.compile(TEXT)(A=a, client=client, arena="64KiB")
    np.testing.assert_array_equal(found["C"], a @ a)
    assert os.listdir(tmp_path) == []
    assert isinstance(answers[0], OSError) and answers[1]["status"] == "uncaught-error"
