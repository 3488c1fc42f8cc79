"""Charts of bench/compare's records as SVG, written by hand: so a chart is a function of its record alone, and a test
can compare it byte for byte. Standard library only.

bars() draws groups of bars, panels() small line charts beside each other, tracks() what lasted from when to when. Each
gives the text of a file."""
import math

COLOURS = {"tdict": "#1b6ca8", "driver": "#7f7f7f", "torch": "#d1495b", "tensordict": "#edae49", "jax": "#66a182",
           "line": "#333333"}
NAMES = {"tdict": "tdict", "driver": "plain driver calls", "torch": "PyTorch", "tensordict": "TensorDict", "jax": "JAX",
         "line": "pinned line"}
FONT = 'font-family="Helvetica, Arial, sans-serif"'


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value):
    """At most three digits that count, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{digits}f}"


def nice_top(value):
    """The next round number that a scale may end with."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)


class Canvas:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def text(self, x, y, text, size=12, anchor="start", fill="#222222", turn=None):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{fill}"{turned}>{escape(text)}</text>')

    def rect(self, x, y, width, height, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>')

    def line(self, x1, y1, x2, y2, stroke="#cccccc", width=1.0):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
                          f'stroke-width="{width}"/>')

    def path(self, points, stroke):
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{joined}" fill="none" stroke="{stroke}" stroke-width="2"/>')
        for x, y in points:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{stroke}"/>')

    def legend(self, x, y, series):
        for who in series:
            self.rect(x, y - 9, 11, 11, COLOURS[who])
            self.text(x + 16, y, NAMES[who])
            x += 34 + 7 * len(NAMES[who])

    def done(self):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" {FONT}>')
        return "\n".join([head, f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>'] + self.parts
                         + ["</svg>"]) + "\n"


def bars(title, note, groups, series):
    """groups: (name, {series: (value, spread)}) in order; what a group lacks is left out. Values in milliseconds."""
    bar, gap, left, top, high = 36, 30, 60, 70, 260
    series = [who for who in series if any(who in values for _, values in groups)]
    widths = [bar * max(1, sum(who in values for who in series)) for _, values in groups]
    width = max(560, left + sum(widths) + gap * (len(groups) + 1) + 20)
    canvas = Canvas(width, top + high + 80)
    most = nice_top(max(value + spread for _, values in groups for value, spread in values.values()))
    canvas.text(left, 24, title, 16)
    canvas.text(left, 42, note, 11, fill="#555555")
    canvas.legend(left, 62, series)
    for i in range(6):
        y = top + high - high * i / 5
        canvas.line(left, y, width - 10, y)
        canvas.text(left - 6, y + 4, f"{most * i / 5:g}", 11, "end", "#555555")
    x = left + gap
    for (name, values), span in zip(groups, widths):
        for who in series:
            if who not in values:
                continue
            value, spread = values[who]
            tall = high * value / most
            canvas.rect(x + 2, top + high - tall, bar - 4, tall, COLOURS[who])
            low = top + high - high * max(0, value - spread / 2) / most
            up = top + high - high * (value + spread / 2) / most
            canvas.line(x + bar / 2, low, x + bar / 2, up, "#111111")
            canvas.text(x + bar / 2, up - 4, number(value), 10, "middle")
            x += bar
        for i, part in enumerate(wrapped(name, 2 + int((span + gap) / 6.5))):
            canvas.text(x - span / 2, top + high + 18 + 14 * i, part, 11, "middle")
        x += gap
    return canvas.done()


def wrapped(text, most):
    """Lines of at most so many letters, broken at spaces."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


class Scale:
    """From values to places, by logarithm or evenly."""

    def __init__(self, values, start, end, log):
        self.log, self.start, self.end = log, start, end
        self.low, self.high = (min(values), max(values)) if values else (1, 2)
        if log:
            self.low, self.high = 10 ** math.floor(math.log10(self.low)), 10 ** math.ceil(math.log10(self.high))
            if self.low == self.high:
                self.high *= 10

    def place(self, value):
        if self.log:
            part = math.log10(value / self.low) / math.log10(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low or 1)
        return self.start + part * (self.end - self.start)

    def ticks(self):
        return [10 ** i for i in range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)]


def panels(title, note, charts, series, unit):
    """charts: (name, labels of x, {series: {label: value}}) in order, two beside each other; y is logarithmic."""
    wide, tall, left, top = 330, 220, 62, 96
    rows = math.ceil(len(charts) / 2)
    canvas = Canvas(2 * (wide + left) + 20, top + rows * (tall + 76))
    canvas.text(left, 24, title, 16)
    canvas.text(left, 42, note, 11, fill="#555555")
    canvas.legend(left, 62, [who for who in series if any(who in lines for _, _, lines in charts)])
    for i, (name, labels, lines) in enumerate(charts):
        x0, y0 = left + (i % 2) * (wide + left), top + (i // 2) * (tall + 76)
        canvas.text(x0, y0 - 6, name, 13)
        y = Scale([value for points in lines.values() for value in points.values()], y0 + tall, y0 + 6, True)
        x = Scale([0, max(1, len(labels) - 1)], x0 + 16, x0 + wide - 16, False)
        for tick in y.ticks():
            canvas.line(x0, y.place(tick), x0 + wide, y.place(tick))
            canvas.text(x0 - 6, y.place(tick) + 4, f"{tick:g}", 11, "end", "#555555")
        for at, label in enumerate(labels):
            canvas.text(x.place(at), y0 + tall + 18, label, 11, "middle", "#555555")
        for who in series:
            if who in lines:
                points = [(x.place(labels.index(label)), y.place(value)) for label, value in lines[who].items()]
                canvas.path(points, COLOURS[who])
        canvas.text(x0, y0 + tall + 36, unit, 11, fill="#555555")
    return canvas.done()


def tracks(title, note, charts):
    """charts: (name, [(what, track, begin, end)]) in order, under each other, all with one scale of time."""
    left, wide, lane, top = 150, 560, 24, 60
    most = nice_top(max(end for _, events in charts for _, _, _, end in events))
    names = [list(dict.fromkeys(track for _, track, _, _ in events)) for _, events in charts]
    canvas = Canvas(left + wide + 30, top + sum(len(tracks_) * lane + 44 for tracks_ in names))
    canvas.text(20, 24, title, 16)
    canvas.text(20, 42, note, 11, fill="#555555")
    colours = list(COLOURS.values())
    y = top
    for (name, events), tracks_ in zip(charts, names):
        canvas.text(20, y + 14, name, 13)
        bottom = y + 20 + len(tracks_) * lane
        for i in range(6):
            x = left + wide * i / 5
            canvas.line(x, y + 20, x, bottom)
            canvas.text(x, bottom + 13, f"{most * i / 5:g}", 10, "middle", "#555555")
        for number, track in enumerate(tracks_):
            canvas.text(left - 6, y + 36 + number * lane, track, 11, "end")
            for what, one, begin, end in events:
                if one != track:
                    continue
                at, span = left + wide * begin / most, max(1.5, wide * (end - begin) / most)
                canvas.rect(at, y + 23 + number * lane, span, lane - 6, colours[number % len(colours)])
                if span > 7 * len(what):
                    canvas.text(at + 4, y + 36 + number * lane, what, 11, fill="#ffffff")
        y = bottom + 24
    return canvas.done()
