"""Draws bar charts of records as SVG. The same record always yields the same chart. Needs only the standard library."""
import math

COLOURS = {"tdict": "#1b6ca8", "driver": "#7f7f7f", "torch": "#d1495b", "tensordict": "#edae49",
           "hand": "#7f7f7f", "line": "#333333"}
NAMES = {"tdict": "tdict", "driver": "plain driver calls", "torch": "PyTorch", "tensordict": "TensorDict",
         "hand": "by hand", "line": "pinned line"}
FONT = 'font-family="Helvetica, Arial, sans-serif"'


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value):
    """Formats a number with at most three significant digits, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{digits}f}"


def nice_top(value):
    """Returns the upper end of a scale: the smallest round number that is not less than `value` (within 0.1 %)."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)


class Canvas:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def text(self, x, y, text, size=12, anchor="start", fill="#222222"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{fill}">{escape(text)}</text>')

    def rect(self, x, y, width, height, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>')

    def line(self, x1, y1, x2, y2, stroke="#cccccc", width=1.0):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
                          f'stroke-width="{width}"/>')

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
    """Returns an SVG bar chart of groups (name, {series: (milliseconds, spread)}). A group may lack a series."""
    bar, gap, left, top, high = 36, 30, 60, 84, 260
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
    """Splits a string at spaces into lines of at most `most` characters. A longer word gets a line of its own."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
