"""Renders terminal output as SVG, for the screenshots of the book:

CLICOLOR_FORCE=1 sh -c 'torchlet diff model.pte' |
    python docs/images/terminal.py 'torchlet diff model.pte' > docs/images/diff.svg
"""

import html
import re
import sys

COLUMNS, ROWS = 128, 44
WIDTH, HEIGHT, MARGIN = 7.2, 16, 14
COLOURS = {
    31: "#ff7b72",
    32: "#7ee787",
    33: "#e3b341",
    34: "#79c0ff",
    35: "#d2a8ff",
    36: "#56d4dd",
    91: "#ff7b72",
    92: "#7ee787",
    93: "#e3b341",
}
ESCAPE = re.compile(r"\x1b\[([\d;]*)m")


def pieces(line):
    """Splits a line into parts with their SGR codes, up to the last column."""
    codes, at, column = [], 0, 0
    for match in [*ESCAPE.finditer(line), None]:
        end = match.start() if match else len(line)
        text = line[at:end][: max(COLUMNS - column, 0)]
        if text:
            yield codes, text
            column += len(text)
        if match:
            new = [int(code) for code in match[1].split(";") if code]
            codes = [] if new in ([], [0]) else codes + new
            at = match.end()


def drawn(line, row):
    spans = []
    for codes, text in pieces(line):
        style = ""
        for code in codes:
            style += {
                1: ' font-weight="bold"',
                2: ' fill-opacity="0.6"',
                4: ' text-decoration="underline"',
            }.get(code, "")
            style += f' fill="{COLOURS[code]}"' if code in COLOURS else ""
        spans.append(f"<tspan{style}>{html.escape(text)}</tspan>")
    return f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * (row + 0.8):.1f}" xml:space="preserve">{"".join(spans)}</text>'


def main():
    lines = sys.stdin.read().expandtabs().rstrip().split("\n")
    lines = [
        line for command in sys.argv[1:] for line in [f"\x1b[2m$\x1b[0m \x1b[1m{command}\x1b[0m"]
    ] + lines
    if len(lines) > ROWS:
        lines = lines[: ROWS - 1] + ["\x1b[2m…\x1b[0m"]
    longest = max(sum(len(text) for _, text in pieces(line)) for line in lines)
    width, height = longest * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
    )
    print(
        ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="12" fill="#d0d7de">'
    )
    print(f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#0d1117"/>')
    print("\n".join(drawn(line, row) for row, line in enumerate(lines)))
    print("</svg>")


main()
