"""Values of options that are refused, in words of the command line."""

import pytest
from click.testing import CliRunner

from einturnip.cli.main import cli


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "p.ein", "--workers", "2.5"), "'--workers': '2.5' is not a whole number of at least 1"),
        (("run", "p.ein", "--random", "half"), "'half' is not a whole number of at least 0"),
        (("run", "p.ein", "--steps", "many"), "'many' is not a whole number of at least 1"),
        (("plan", "p.ein", "--jitter", "nan"), "'nan' is not a number from 0.0 to 3.0"),
        (("verify", "p.json", "--limit", "0"), "'0' is not a whole number of at least 1"),
    ],
)
def test_a_number_names_its_bounds(arguments: tuple[str, ...], message: str) -> None:
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 2 and message in refused.output
