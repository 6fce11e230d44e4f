"""The lower bound on bytes between sites: the published formula, its assumptions, and plans that come close to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from einturnip.cli.main import cli
from einturnip.compiler import bind
from einturnip.eingraph.types import EinGraph
from einturnip.lang import compile_text
from einturnip.tiling.site_lower_bound import lower_bound_nbytes

PRODUCT = "input A : {a}[m, k], B : {b}[k, n]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"
PROGRAMS = {
    "product": (PRODUCT.format(a="f64", b="f64"), dict(m=768, n=768, k=768)),
    "ladder": (
        "input W : f64[a, b, c, d], T : f64[c, d, i, j]\nR[a,b,i,j] = W[a,b,c,d] * T[c,d,i,j]\noutput R\n",
        dict(a=20, b=20, c=20, d=20, i=8, j=8),
    ),
    "rank 3": (
        "input A : f64[i, j, k], B : f64[k, l]\nT[i,j,l] = A[i,j,k] * B[k,l]\noutput T\n",
        dict(i=32, j=24, k=512, l=640),
    ),
}


def graph_of(text: str, dims: dict[str, int]) -> EinGraph:
    return bind(compile_text(text, "p.ein"), {}, dims)


def published(m: int, n: int, k: int, sites: int) -> float:
    """Elements over all sites: theorem 1 and corollary 4 of Al Daas et al., by the number of sites."""
    a, b, c = sorted((m, n, k), reverse=True)
    if sites <= a / b:
        access = (a * b + a * c) / sites + b * c
    elif sites <= a * b / c**2:
        access = 2 * (a * b * c * c / sites) ** 0.5 + a * b / sites
    else:
        access = 3 * (a * b * c / sites) ** (2 / 3)
    return sites * access - (a * b + a * c + b * c)


@pytest.mark.parametrize("sites", [1, 2, 4, 8, 64, 1000])
@pytest.mark.parametrize("extents", [(700, 700, 700), (4000, 60, 4000), (9000, 10, 7), (5, 6000, 40)])
def test_it_is_the_published_bound(extents: tuple[int, int, int], sites: int) -> None:
    m, n, k = extents
    found = lower_bound_nbytes(graph_of(PRODUCT.format(a="f64", b="f64"), dict(m=m, n=n, k=k)), sites)
    assert found == pytest.approx(8 * published(m, n, k, sites), abs=8)


def test_matrices_of_small_elements_pass_instead_of_others() -> None:
    narrow = graph_of(PRODUCT.format(a="f32", b="f64"), dict(m=600, n=600, k=600))
    alike = [graph_of(PRODUCT.format(a=t, b=t), dict(m=600, n=600, k=600)) for t in ("f32", "f64")]
    low, high = (lower_bound_nbytes(graph, 8) for graph in alike)
    assert low < lower_bound_nbytes(narrow, 8) < high


@pytest.mark.parametrize(
    "text",
    [
        "input A : f64[b, n]\nB[i,j] = exp(A[i,j])\noutput B\n",
        "input A : f64[b, n, n]\nC[b,i,j] = A[b,i,k] * A[b,k,j]\noutput C\n",
    ],
)
def test_statements_without_a_known_bound_count_as_nothing(text: str) -> None:
    assert lower_bound_nbytes(graph_of(text, dict(n=64, b=4)), 8) == 0


@pytest.mark.parametrize("sites", [2, 4, 8, 16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_come_close_to_it(name: str, sites: int, tmp_path: Path) -> None:
    text, dims = PROGRAMS[name]
    (tmp_path / "p.ein").write_text(text)
    sizes = [word for label, size in dims.items() for word in ("--dim", f"{label}={size}")]
    arguments = ["plan", str(tmp_path / "p.ein"), *sizes, "--sites", str(sites), "--arena", "1MiB", "--no-budgets"]
    shown = CliRunner().invoke(cli, [*arguments, "--format", "json"])
    assert shown.exit_code == 0, shown.output
    plan = json.loads(shown.stdout)
    inputs = sum(site["bytes_in"] + site["first_read_bytes"] for site in plan["sites"]) - plan["exchanged_bytes"]
    assert inputs == 8 * sum(
        {"product": [768**2] * 2, "ladder": [20**4, 20**2 * 64], "rank 3": [32 * 24 * 512, 512 * 640]}[name]
    )
    assert 1 - 1e-6 <= plan["exchanged_bytes"] / plan["site_lower_bound_bytes"] <= 1.3
    assert "times the lower bound" in " ".join(CliRunner().invoke(cli, arguments).output.split())


def test_unlike_sites_access_the_parts_of_their_shares() -> None:
    """The bound of sites with rates is that of theorem 1, evaluated for the share of each."""
    graph = graph_of(PRODUCT.format(a="f64", b="f64"), dict(m=700, n=700, k=700))
    assert lower_bound_nbytes(graph, 8, [0.5] * 8) == lower_bound_nbytes(graph, 8)
    shares = (0.5, 0.25, 0.25)
    accessed = sum(3 * (700**3 * share) ** (2 / 3) for share in shares)
    assert lower_bound_nbytes(graph, 3, (1, 0.5, 0.5)) == pytest.approx(8 * (accessed - 3 * 700**2), abs=8)
