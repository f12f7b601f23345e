"""Charts as SVG text, small and self-contained: scales, axes, lines and dots. Pure; whatever is shown is escaped.

A chart carries a title and a description for who cannot see it, each mark has a tooltip, and colours are those of
Okabe and Ito, which people with any colour vision tell apart. Text and axes take the colour of the page around them.
"""

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#d55e00", "#009e73", "#cc3311", "#888888"
WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 44
_UNFIT = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\ufdd0-\ufdef]")
"""Characters that neither HTML nor XML may hold, lone surrogates among them."""

Point = tuple[float, float]


def escape(text: object) -> str:
    """Any text as content or as a quoted attribute of HTML and SVG."""
    return html.escape(_UNFIT.sub("\ufffd", str(text)), quote=True)


def label(value: float) -> str:
    """A number on an axis: `0.001`, `250`, `1.5e+06`."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e5 else f"{value:.4g}"


@dataclass(frozen=True)
class Scale:
    """Values to pixels; `log` needs values above 0."""

    low: float
    high: float
    start: float
    """Pixel of `low`."""
    end: float
    log: bool = False

    @staticmethod
    def over(values: Iterable[float], start: float, end: float, *, log: bool | None = None) -> "Scale":
        """The scale that shows all values with a little room. `log` None: where they span more than two decades."""
        seen = list(values) or [0.0, 1.0]
        low, high = min(seen), max(seen)
        if log is None:
            log = low > 0 and high / low > 100
        log = log and low > 0
        if log:
            low, high = (low, high) if high > low else (low / 2, high * 2)
            return Scale(low, high, start, end, log=True)
        room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        return Scale(low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        if self.log:
            share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the scale."""
        if self.log:
            low, high = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            decades = [10.0**power for power in range(low, high + 1, max((high - low) // most + 1, 1))]
            return decades if len(decades) > 1 else [self.low, self.high]
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * by for by in (1, 2, 5, 10) if power * by >= rough)
        first = math.ceil(self.low / step)
        return [index * step for index in range(first, math.floor(self.high / step) + 1)]


@dataclass
class Chart:
    """A drawing in the making. `x` and `y` are the scales of its axes, where it has any."""

    title: str
    description: str
    height: int = HEIGHT
    left: int = LEFT
    cut: str = ""
    """What was left out of it, as a sentence."""
    parts: list[str] = field(default_factory=list)

    @property
    def bottom(self) -> float:
        """Pixel of the horizontal axis."""
        return self.height - BOTTOM

    def horizontal(self, values: Iterable[float], *, log: bool | None = False) -> Scale:
        """A scale over the chart's width."""
        return Scale.over(values, self.left, WIDTH - RIGHT, log=log)

    def vertical(self, values: Iterable[float], *, log: bool | None = False) -> Scale:
        """A scale over the chart's height, low values below."""
        return Scale.over(values, self.bottom, TOP, log=log)

    def axes(self, x: Scale, y: Scale, *, across: str, up: str, whole: bool = False) -> None:
        """Both axes with ticks, grid and names; `whole`: only whole numbers along the horizontal one."""
        for value in x.ticks(8):
            if whole and value != int(value):
                continue
            self.text(x(value), self.bottom + 16, label(value), anchor="middle")
            self.path([(x(value), TOP), (x(value), self.bottom)], css="g")
        for value in y.ticks():
            self.text(self.left - 6, y(value) + 4, label(value), anchor="end")
            self.path([(self.left, y(value)), (WIDTH - RIGHT, y(value))], css="g")
        middle = (self.left + WIDTH - RIGHT) / 2
        self.text(middle, self.height - 8, across, anchor="middle", css="n")
        at = (TOP + self.bottom) / 2
        turned = (
            f'<text class="n" text-anchor="middle" transform="translate(13 {at:.0f}) rotate(-90)">{escape(up)}</text>'
        )
        self.parts.append(turned)

    def path(
        self, points: Sequence[Point], *, colour: str = "", width: float = 1, opacity: float = 1, css: str = "",
        tip: str = "", dashed: bool = False,
    ) -> None:  # fmt: skip
        """A line through pixels; a single point is drawn as a short dash."""
        if not points:
            return
        drawn = (
            list(points) if len(points) > 1 else [(points[0][0] - 2, points[0][1]), (points[0][0] + 2, points[0][1])]
        )
        joined = " ".join(f"{_pixel(x)},{_pixel(y)}" for x, y in drawn)
        look = f' class="{css}"' if css else f' stroke="{colour}" stroke-width="{width:g}"'
        look += f' opacity="{opacity:.2g}"' if opacity < 1 else ""
        look += ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<polyline points="{joined}" fill="none"{look}>{_tip(tip)}</polyline>')

    def dot(self, x: float, y: float, *, colour: str, shape: str = "disc", size: float = 4, tip: str = "") -> None:
        """A mark: `disc`, `ring`, `cross` or `star`, so that nothing is told by colour alone."""
        across, up = _pixel(x), _pixel(y)
        if shape == "cross":
            a, b, c, d = (_pixel(each) for each in (x - size, x + size, y - size, y + size))
            drawn = f'<path d="M{a} {c}L{b} {d}M{a} {d}L{b} {c}" stroke="{colour}" stroke-width="2" fill="none">'
            self.parts.append(f"{drawn}{_tip(tip)}</path>")
            return
        size = size * 1.7 if shape == "star" else size
        fill = f'fill="none" stroke="{colour}" stroke-width="1.5"' if shape == "ring" else f'fill="{colour}"'
        edge = ' stroke="currentColor" stroke-width="1.5"' if shape == "star" else ""
        self.parts.append(f'<circle cx="{across}" cy="{up}" r="{size:g}" {fill}{edge}>{_tip(tip)}</circle>')

    def bar(self, x: float, y: float, width: float, height: float, *, colour: str, tip: str = "") -> None:
        """A filled rectangle from its upper left corner."""
        box = f'x="{_pixel(x)}" y="{_pixel(y)}" width="{_pixel(max(width, 0.5))}" height="{_pixel(height)}"'
        self.parts.append(f'<rect {box} fill="{colour}">{_tip(tip)}</rect>')

    def text(self, x: float, y: float, text: object, *, anchor: str = "start", css: str = "") -> None:
        """Words; `anchor` is start, middle or end."""
        look = f' class="{css}"' if css else ""
        look += f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text x="{_pixel(x)}" y="{_pixel(y)}"{look}>{escape(text)}</text>')

    def render(self) -> str:
        """The chart as an `<svg>` element, to be put into a page."""
        head = f'<svg role="img" viewBox="0 0 {WIDTH} {self.height}" xmlns="http://www.w3.org/2000/svg">'
        told = f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>"
        return "".join([head, told, *self.parts, "</svg>"])


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` of the points of a curve, those that keep its shape; first and last stay.

    Largest-triangle-three-buckets (Steinarsson 2013, "Downsampling Time Series for Visual Representation"): of each
    bucket the point that spans the largest triangle with the one kept before it and the mean of the next bucket.
    """
    if len(points) <= most or most < 3:
        return list(points) if most >= 3 else [*points[:1], *points[1:][-1:]]
    kept = [points[0]]
    size = (len(points) - 2) / (most - 2)
    edges = [1 + round(index * size) for index in range(most - 1)]
    for index in range(most - 2):
        bucket = points[edges[index] : edges[index + 1]]
        following = points[edges[index + 1] : edges[index + 2]] if index + 2 < len(edges) else points[-1:]
        middle = (sum(x for x, _ in following) / len(following), sum(y for _, y in following) / len(following))
        last = kept[-1]

        def area(point: Point, last: Point = last, middle: Point = middle) -> float:
            return abs((last[0] - middle[0]) * (point[1] - last[1]) - (last[0] - point[0]) * (middle[1] - last[1]))

        kept.append(max(bucket, key=area))
    return [*kept, points[-1]]


def _pixel(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _tip(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""
