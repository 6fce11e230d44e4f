"""Line charts in rows, as an SVG without dependencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 270, 200, 46, 34, 34
COLOURS = ("#1a6", "#26c", "#c62", "#a3a", "#888", "#c22", "#085", "#b80")


@dataclass(frozen=True)
class Panel:
    """One chart: points (x, y) of each line, drawn at equal distances along x; y is logarithmic if ``log``."""

    title: str
    lines: Mapping[str, Sequence[tuple[str, float]]]
    log: bool = False


def svg(rows: Sequence[Sequence[Panel]], caption: str) -> str:
    """All panels, with a legend and what the axes show below them."""
    names = list(dict.fromkeys(name for row in rows for panel in row for name in panel.lines))
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(names)}
    columns = max(len(row) for row in rows)
    across = max(1, WIDTH * columns // 150)
    width, height = WIDTH * columns, HEIGHT * len(rows) + 24 + 20 * -(-len(names) // across)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">']
    out.append("<style>text{font:11px sans-serif;fill:#444}.t{font-weight:bold}.g{stroke:#ddd;fill:none}</style>")
    out.append(f'<rect width="{width}" height="{height}" fill="#fff"/>')
    for r, row in enumerate(rows):
        for c, panel in enumerate(row):
            out += _panel(panel, colours, c * WIDTH, r * HEIGHT)
    out.append(f'<text x="20" y="{HEIGHT * len(rows) + 14}">{caption}</text>')
    for n, name in enumerate(names):
        x, y = 20 + 150 * (n % across), HEIGHT * len(rows) + 36 + 20 * (n // across)
        out.append(f'<path d="M{x} {y - 4}h22" stroke="{colours[name]}" stroke-width="2"/>')
        out.append(f'<text x="{x + 28}" y="{y}">{name}</text>')
    return "\n".join([*out, "</svg>\n"])


def _panel(panel: Panel, colours: Mapping[str, str], x0: int, y0: int) -> list[str]:
    places = list(dict.fromkeys(x for line in panel.lines.values() for x, _ in line))
    values = [y for line in panel.lines.values() for _, y in line]
    scaled = math.log if panel.log else float
    low, high = (scaled(min(values)) if panel.log else 0.0), scaled(max(values))
    high = high if high > low else low + 1.0

    def x(place: str) -> float:
        return x0 + LEFT + (WIDTH - LEFT - 16) * places.index(place) / max(1, len(places) - 1)

    def y(value: float) -> float:
        return y0 + TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    out = [f'<text x="{x0 + LEFT}" y="{y0 + 20}" class="t">{panel.title}</text>']
    for k in range(5):
        at = low + (high - low) * k / 4
        out.append(f'<path d="M{x(places[0]):.1f} {y(at):.1f}H{x(places[-1]):.1f}" class="g"/>')
        shown = f"{math.exp(at) if panel.log else at:.3g}"
        out.append(f'<text x="{x(places[0]) - 5:.1f}" y="{y(at) + 4:.1f}" text-anchor="end">{shown}</text>')
    out += [f'<text x="{x(p):.1f}" y="{y(low) + 15:.1f}" text-anchor="middle">{p}</text>' for p in places]
    for name, line in panel.lines.items():
        points = " ".join(f"{x(p):.1f},{y(scaled(v)):.1f}" for p, v in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="1.6"/>')
    return out
