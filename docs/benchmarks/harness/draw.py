"""Draws ratios as SVG: a bar with its interval for each case, and a line at equal speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

_ROW, _LEFT, _WIDTH, _TOP = 22, 210, 460, 46


def ratios_svg(bars: Sequence[tuple[str, float, float, float]], title: str) -> str:
    """Bars of (name, ratio, low, high) on a logarithmic scale, as SVG."""
    ends = [abs(math.log2(x)) for _, *values in bars for x in values if x > 0 and math.isfinite(x)]
    reach = max(1.0, math.ceil(max(ends, default=1.0)))

    def x(ratio: float) -> float:
        return _LEFT + _WIDTH * (0.5 + math.log2(ratio) / (2 * reach))

    height = _TOP + _ROW * len(bars) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 70} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    bottom = _TOP + _ROW * len(bars)
    for k in range(-int(reach), int(reach) + 1):
        at, colour = x(2.0**k), "#444" if k == 0 else "#ddd"
        parts.append(f'<line x1="{at:.1f}" y1="{_TOP - 8}" x2="{at:.1f}" y2="{bottom}" stroke="{colour}"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#444">{2.0**k:g}</text>')
    for row, (name, ratio, low, high) in enumerate(bars):
        y = _TOP + _ROW * row
        lo, hi = sorted((x(1), x(ratio)))
        colour = "#2a7f62" if ratio >= 1 else "#b5542f"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{lo:.1f}" y="{y + 3}" width="{max(hi - lo, 1):.1f}" height="13" fill="{colour}"/>')
        parts.append(
            f'<line x1="{x(low):.1f}" y1="{y + 9.5}" x2="{x(high):.1f}" y2="{y + 9.5}" stroke="#111" '
            'stroke-width="1.5"/>'
        )
        parts.append(f'<text x="{_LEFT + _WIDTH + 8}" y="{y + 13}">{ratio:.2f}</text>')
    return "\n".join([*parts, "</svg>", ""])
