"""The report as one HTML page: page.html with the data in it."""

import json
import pathlib


def page(data):
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8").replace("/*DATA*/", text)
