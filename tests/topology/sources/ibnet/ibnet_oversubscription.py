#!/usr/bin/env python3
"""ibnet_oversubscription.py DUMP: oversubscription of every leaf switch, from ibnetdiscover's text alone.

A second reading, which shares nothing with the product: one line "LEAF DOWN UP" a switch that adapters hang on,
where DOWN and UP are the data rates in Gbit/s, as fractions, of its cables to adapters and to other switches.
"""
import re
import sys
from fractions import Fraction

# Gbit/s of data on one lane, as the rates are sold: 4xEDR is 100 Gbit/s.
LANE = {
    "SDR": Fraction(2), "DDR": Fraction(4), "QDR": Fraction(8), "FDR10": Fraction(10),
    "FDR": Fraction("14.0625") * Fraction(64, 66), "EDR": Fraction(25), "HDR": Fraction(50),
    "NDR": Fraction(100), "XDR": Fraction(200),
}

leaf = None
down, up = {}, {}
for line in open(sys.argv[1], encoding="utf-8", errors="replace"):
    header = re.match(r'(Switch|Ca|Rt)\s+\d+\s+"[SHR]-\w+"\s*#\s*"([^"]*)"', line)
    if header:
        leaf = header.group(2) if header.group(1) == "Switch" else None
        continue
    port = re.match(r'\[\d+\]\s*"([SHR])-.*\s(\d+)x(\w+)\s*$', line)
    if leaf is None or not port:
        continue
    kind, lanes, speed = port.groups()
    side = down if kind == "H" else up
    side[leaf] = side.get(leaf, 0) + int(lanes) * LANE[speed]
for name in sorted(down):
    print(name, down[name], up.get(name, 0))
