"""The plot of cost against size, as SVG written by hand: logarithmic axes, one line a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10

Points = Sequence[tuple[float, float]]
"""(events in the log, microseconds), by growing size."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 760, 400, 70, 50, 30, 210
_COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df", "#9a6700", "#57606a")


def svg(title: str, lines: Mapping[str, Points]) -> str:
    """Draw every line; a line that lies flat is a cost that does not grow."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    x0, x1 = floor(log10(min(xs))), ceil(log10(max(xs)))
    y0, y1 = floor(log10(min(ys))), ceil(log10(max(ys)))
    x1, y1 = max(x1, x0 + 1), max(y1, y0 + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        right, up = (log10(x) - x0) / (x1 - x0), (log10(y) - y0) / (y1 - y0)
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + right * width, _HEIGHT - _BOTTOM - up * height

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<title>{title}</title><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{title}</text>',
    ]
    for exponent in range(x0, x1 + 1):
        x, y = at(10**exponent, 10**y0)
        parts.append(_line((x, y), at(10**exponent, 10**y1), "#d0d7de"))
        parts.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle">{_count(10**exponent)}</text>')
    for exponent in range(y0, y1 + 1):
        x, y = at(10**x0, 10**exponent)
        parts.append(_line((x, y), at(10**x1, 10**exponent), "#d0d7de"))
        parts.append(f'<text x="{x - 8:.0f}" y="{y + 4:.0f}" text-anchor="end">{_time(10.0**exponent)}</text>')
    taken: list[float] = []
    for (name, points), color in zip(lines.items(), _COLORS * 3, strict=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in (at(*p) for p in points)]
        x, y = at(*points[-1])
        while any(abs(y - other) < 14 for other in taken):
            y += 14
        taken.append(y)
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 4:.0f}" fill="{color}">{name}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 8}">events in the log</text></svg>')
    return "\n".join(parts) + "\n"


def _line(start: tuple[float, float], end: tuple[float, float], color: str) -> str:
    return f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{color}"/>'


def _count(number: int) -> str:
    return f"{number // 1_000_000}M" if number >= 1_000_000 else f"{number // 1000}k" if number >= 1000 else str(number)


def _time(us: float) -> str:
    return f"{us / 1e6:g} s" if us >= 1e6 else f"{us / 1e3:g} ms" if us >= 1e3 else f"{us:g} us"
