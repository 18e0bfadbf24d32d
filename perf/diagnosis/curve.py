#!/usr/bin/env python3
"""curve.py: draws what injections prints: precision and recall of each family of faults over their severity.

usage: injections ... | curve.py FILE.svg

What it reads it also prints, so that the table is kept. Of several tables, one behind the other, it draws the sums.
"""

import collections
import sys

FAMILIES = {"rank": ["late rank"], "NIC": ["NIC, out", "NIC, in", "NIC, both"], "uplink": ["uplink, one way", "uplink, both"],
            "whole tier": ["tier"], "two links": ["two links"]}
COLOURS = {"rank": "#7b4fb5", "NIC": "#2166ac", "uplink": "#d95f0e", "whole tier": "#238b45", "two links": "#b2182b"}
WIDTH, HEIGHT, LEFT, TOP, GAP, BELOW = 380, 260, 56, 40, 70, 76
LEAST = 0.4  # of the scale


def rows_of(lines):
    """(fault, severity) -> the figures of its row, by the heads of their columns."""
    rows, head = {}, None
    for line in lines:
        print(line, end="", flush=True)
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[0] == "fault":
            head = cells
        elif head and len(cells) == len(head) and cells[1] not in ("-", "---"):
            sums = rows.setdefault((cells[0], float(cells[1])), collections.Counter())
            sums.update({name: int(value) for name, value in zip(head[2:], cells[2:]) if value.isdigit()})
    return rows


def points_of(rows, faults, of):
    """(severity, share) for each severity at which one of the faults matters."""
    points = []
    for severity in sorted({severity for _, severity in rows}):
        found = [rows[fault, severity] for fault in faults if (fault, severity) in rows]
        named = sum(row["named"] for row in found)
        all_ = sum(row["matter"] if of == "recall" else row["named"] + row["wrong"] for row in found)
        if all_:
            points.append((severity, named / all_))
    return points


def panel(rows, of, left, severities):
    def x(severity):
        return left + WIDTH * severities.index(severity) / max(1, len(severities) - 1)

    def y(share):
        return TOP + HEIGHT * (1 - (max(share, LEAST) - LEAST) / (1 - LEAST))

    text = f'<text x="{left}" y="{TOP - 14}" class="head">{of}</text>\n'
    for tenth in range(int(LEAST * 10), 11):
        text += f'<line x1="{left}" x2="{left + WIDTH}" y1="{y(tenth / 10):.1f}" y2="{y(tenth / 10):.1f}" class="grid"/>\n'
        text += f'<text x="{left - 8}" y="{y(tenth / 10) + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>\n'
    for severity in severities:
        text += f'<text x="{x(severity):.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{severity:g} times</text>\n'
    for family, faults in FAMILIES.items():
        points = [(x(severity), y(share), severity, share) for severity, share in points_of(rows, faults, of)]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py, *_ in points)
        text += f'<polyline points="{line}" fill="none" stroke="{COLOURS[family]}" stroke-width="2"/>\n'
        for px, py, severity, share in points:
            text += f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{COLOURS[family]}"><title>{family}, {severity:g} times: ' \
                    f'{share:.3f}</title></circle>\n'
    return text


def picture(rows):
    severities = sorted({severity for _, severity in rows})
    width, height = 2 * (LEFT + WIDTH) + GAP, TOP + HEIGHT + BELOW
    text = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
    text += '<style>text { font: 13px sans-serif; fill: #333 } .head { font-weight: bold } .grid { stroke: #ddd }</style>\n'
    text += f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
    text += panel(rows, "precision", LEFT, severities) + panel(rows, "recall", LEFT + WIDTH + GAP + LEFT // 2, severities)
    for number, (family, colour) in enumerate(COLOURS.items()):
        x, y = LEFT + 150 * number, height - 18
        text += f'<line x1="{x}" x2="{x + 24}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="3"/>\n'
        text += f'<text x="{x + 30}" y="{y}">{family}</text>\n'
    return text + "</svg>\n"


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    rows = rows_of(sys.stdin)
    if not rows:
        sys.exit("curve.py: there is no table of injections on standard input")
    with open(sys.argv[1], "w") as file:
        file.write(picture(rows))


if __name__ == "__main__":
    main()
