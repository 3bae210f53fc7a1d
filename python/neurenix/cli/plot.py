"""The latencies of engines as a picture, an SVG without anything from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

WIDTH, HEIGHT, LEFT, TOP = 900, 420, 70, 60
#: Columns of the histogram.
BINS = 60
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626")
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2937}.axis{stroke:#9ca3af}.back{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.back{fill:#111827}}"
)


def latencies(samples: Mapping[str, Sequence[float]], title: str) -> str:
    """How often each latency, in milliseconds, was seen. What is slower than 99 % of all is cut off."""
    everything = np.concatenate([np.asarray(s, float) for s in samples.values()])
    low, high = float(everything.min()), float(np.percentile(everything, 99))
    high = high if high > low else low + 1e-3
    counts = {name: np.histogram(values, BINS, (low, high))[0] for name, values in samples.items()}
    shares = {name: count / max(len(samples[name]), 1) for name, count in counts.items()}
    top = max(float(share.max()) for share in shares.values()) or 1.0
    wide, tall = WIDTH - LEFT - 30, HEIGHT - TOP - 60

    def x(ms: float) -> float:
        return LEFT + (ms - low) / (high - low) * wide

    def y(share: float) -> float:
        return TOP + tall * (1 - share / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/><text x="{LEFT}" y="24">{escape(title)}</text>',
        f'<line class="axis" x1="{LEFT}" y1="{TOP + tall}" x2="{LEFT + wide}" y2="{TOP + tall}"/>',
    ]
    for tick in np.linspace(low, high, 6):
        parts.append(f'<text x="{x(tick):.1f}" y="{TOP + tall + 20}" text-anchor="middle">{tick:.3g}</text>')
    parts.append(f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 12}" text-anchor="middle">latency, ms</text>')
    parts.append(f'<text x="{LEFT - 8}" y="{TOP + 5}" text-anchor="end">{top:.0%}</text>')
    for number, (name, share) in enumerate(shares.items()):
        colour = COLOURS[number % len(COLOURS)]
        edges = np.linspace(low, high, BINS + 1)
        steps = " ".join(
            f"L{x(a):.1f} {y(s):.1f} L{x(b):.1f} {y(s):.1f}" for a, b, s in zip(edges, edges[1:], share, strict=False)
        )
        median = float(np.median(samples[name]))
        parts.append(
            f'<path d="M{x(low):.1f} {y(0):.1f} {steps} L{x(high):.1f} {y(0):.1f}" fill="{colour}" '
            f'fill-opacity=".25" stroke="{colour}"/>'
        )
        if low <= median <= high:
            parts.append(
                f'<line x1="{x(median):.1f}" y1="{TOP}" x2="{x(median):.1f}" y2="{TOP + tall}" stroke="{colour}" '
                'stroke-dasharray="4 3"/>'
            )
        label = f"{name}: median {median:.4g} ms, {len(samples[name])} calls"
        parts.append(f'<text x="{LEFT + 220 * number}" y="46" style="fill:{colour}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>", ""])
