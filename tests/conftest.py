"""Hypothesis profiles, and what holds for all tests.

``sample`` is the profile of ``make check``, ``full`` that of ``make slow``; these and ``ci`` draw the same every time.
``deep`` draws anew, for a night.
"""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.drawn import FULL, SAMPLE

# Plans in tests are those of the built-in machine, whatever was measured here.
os.environ["EINTURNIP_CALIBRATION"] = "off"
# And each is made anew.
os.environ["EINTURNIP_PLANS"] = "off"

# Who runs the tests in the background of a shell has them ignore Ctrl-C, which some of them send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

COMMON = dict(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("sample", max_examples=SAMPLE, derandomize=True, **COMMON)
settings.register_profile("full", max_examples=FULL, derandomize=True, **COMMON)
settings.register_profile("ci", max_examples=300, derandomize=True, print_blob=True, **COMMON)
settings.register_profile("deep", max_examples=20_000, print_blob=True, **COMMON)
settings.load_profile("sample")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Store the present plans and code of tests/golden.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from einturnip.kernels.llvm import code_cache

    if not code_cache.available():
        for item in items:
            if item.get_closest_marker("machine_code"):
                item.add_marker(pytest.mark.skip(reason="no machine code on this kind of machine"))


def pytest_collection_finish() -> None:
    # A large plan ends with a collection of garbage, which would walk over the objects of ten thousand tests each time.
    gc.collect()
    gc.freeze()
