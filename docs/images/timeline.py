"""Renders a trace of `torchlet profile --trace` as an SVG timeline: loading and the last run.

torchlet profile model.pte --trace trace.json
python docs/images/timeline.py trace.json > docs/images/timeline.svg
"""

import html
import json
import sys
import zlib

WIDTH, LEFT, ROW, HEAD, MARGIN = 1100, 130, 18, 26, 12


def tracks(events):
    """Returns the name of each thread, and its events with their nesting depth."""
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    found = {}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        found.setdefault((event["pid"], event["tid"]), []).append(event)
    for key, own in sorted(found.items()):
        open_until, placed = [], []
        for event in own:
            while open_until and open_until[-1] <= event["ts"] + 1e-3:
                open_until.pop()
            placed.append((len(open_until), event))
            open_until.append(event["ts"] + event["dur"])
        yield names.get(key, f"{key[0]}.{key[1]}"), placed


def strip(title, found, start, end, top):
    """Draws the events between two times from `top` down; returns the bottom."""
    scale = (WIDTH - LEFT - MARGIN) / (end - start)
    print(f'<text x="{MARGIN}" y="{top + 16}" class="title">{html.escape(title)}</text>')
    top += HEAD
    for name, placed in found:
        inside = [(depth, e) for depth, e in placed if e["ts"] + e["dur"] > start and e["ts"] < end]
        if not inside:
            continue
        print(f'<text x="{MARGIN}" y="{top + 13}">{html.escape(name)}</text>')
        for depth, event in inside:
            left, right = max(event["ts"], start), min(event["ts"] + event["dur"], end)
            x, width, y = (
                LEFT + (left - start) * scale,
                max((right - left) * scale, 0.5),
                top + depth * ROW,
            )
            hue = zlib.crc32(event["name"].split(" ")[0].encode()) % 360
            print(f"<g><title>{html.escape(event['name'])}: {event['dur'] / 1e3:.3f} ms</title>")
            print(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 2}" rx="2" fill="hsl({hue} 55% 72%)"/>'
            )
            text = event["name"][: int(width / 6.4)]
            if len(text) > 2:
                print(f'<text x="{x + 3:.1f}" y="{y + 12}" class="in">{html.escape(text)}</text>')
            print("</g>")
        top += (max(depth for depth, _ in inside) + 1) * ROW + 8
    return top + 6


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        found = json.load(file)
    events = found["traceEvents"] if isinstance(found, dict) else found
    found = list(tracks(events))
    roots = [e for _, placed in found for depth, e in placed if depth == 0]
    load = next(e for e in roots if e["name"].startswith("load"))
    run = [e for e in roots if not e["name"].startswith("load") and e["pid"] == load["pid"]][-1]
    height = (
        2 * HEAD + 2 * sum((max(d for d, _ in placed) + 1) * ROW + 8 for _, placed in found) + 24
    )
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="ui-monospace, monospace" font-size="11">'
    )
    print(
        "<style>svg { background: #fff } text { fill: #222; pointer-events: none } .title { font-weight: bold }"
    )
    print(
        "@media (prefers-color-scheme: dark) { svg { background: #16181d } text { fill: #ddd } .in { fill: #222 } }</style>"
    )
    top = strip(
        f"{load['name']}, {load['dur'] / 1e3:.3f} ms",
        found,
        load["ts"],
        load["ts"] + load["dur"],
        4,
    )
    strip(
        f"{run['name']}, {run['dur'] / 1e3:.3f} ms", found, run["ts"], run["ts"] + run["dur"], top
    )
    print("</svg>")


main()
