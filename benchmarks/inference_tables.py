"""Print the rows of two runs of `python -m benchmarks inference --out` as the tables of a page here.

python benchmarks/inference_tables.py ROWS.json ROWS_OF_ANOTHER_RUN.json
"""

import json
import sys
from pathlib import Path
from typing import Any

MUST = {
    0.9: 2,
    0.95: 4,
    0.98: 9,
    0.99: 15,
    0.995: 28,
    0.998: 50,
}  # times the better dense engine, one image, one thread
OF_BATCHES = 0.7  # of that
NAMES = {"resnet32": "ResNet-32", "vgg19": "VGG-19", "vit-tiny": "ViT-Tiny", "bert-4": "BERT of four layers"}
ENGINES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
OURS, SHRUNK = "hypersparse", "onnxruntime-shrunk"
Row = dict[str, Any]


def cells(rows: list[Row], setting: tuple[str, int, int]) -> dict[float, dict[str, Row]]:
    """The rows of one table: by sparsity, then by engine. Rows without a sparsity are those of all of them."""
    chosen = [row for row in rows if (row["model"], row["batch"], row["threads"]) == setting]
    shared = {row["engine"]: row for row in chosen if row["sparsity"] is None}
    found: dict[float, dict[str, Row]] = {}
    for row in chosen:
        if row["sparsity"] is not None:
            found.setdefault(row["sparsity"], {**shared})[row["engine"]] = row
    return found


def line(sparsity: float, own: dict[str, Row], other: Row | None, must: float | None) -> dict[str, str]:
    """A row of a table, by the words above its columns."""
    ours = own[OURS]
    spread = f"{ours['milliseconds']:.3g} ({ours['milliseconds_low']:.3g}-{ours['milliseconds_high']:.3g})"
    ran = next((name for engine, name in ENGINES.items() if engine in (ours["note"] or "")), "kernel")
    words = {"sparsity": f"{100 * sparsity:g} %", "mask": ours["mask"]}
    words |= {f"{name}, ms": f"{own[engine]['milliseconds']:.3g}" for engine, name in ENGINES.items() if engine in own}
    shrunk = f"{own[SHRUNK]['milliseconds']:.3g}" if SHRUNK in own else ""
    words |= {"shrunk, ms": shrunk, "hypersparse, ms (10-90 %)": spread}
    words["speed-up"] = f"**{ours['speedup']:.3g}x**"
    words["of quiet calls"] = f"{ours['speedup_low']:.3g}x"
    if ours["threads"] > 1:
        return words | {"ran in": ran}
    words["must"] = f"{must:g}x" if must else ""
    if other is not None:
        words["other run (quiet)"] = f"{other['speedup']:.3g}x ({other['speedup_low']:.3g}x)"
    words["ran in"] = ran
    if ours["batch"] == 1:
        words |= {
            "million products": f"{ours['products'] / 1e6:.3g}",
            "of peak": f"{100 * ours['roofline_share']:.0f} %",
        }
        words |= {"file, kB": f"{ours['bytes'] / 1e3:,.0f}"}
    return words | {"difference": f"{ours['max_difference']:.0e}"}


def table(rows: list[Row], others: list[Row], setting: tuple[str, int, int]) -> list[str]:
    """One setting as Markdown."""
    model, batch, threads = setting
    again = cells(others, setting)
    share = 1.0 if batch == 1 else OF_BATCHES
    lines = [
        line(sparsity, own, again.get(sparsity, {}).get(OURS), MUST[sparsity] * share if sparsity in MUST else None)
        for sparsity, own in cells(rows, setting).items()
    ]
    head = list(lines[0])
    return [
        f"## {NAMES[model]}, batch {batch}, {threads} thread{'s' if threads > 1 else ''}",
        "",
        *(
            f"| {' | '.join(each)} |"
            for each in (head, ["---"] * len(head), *(list(words.values()) for words in lines))
        ),
        "",
    ]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"Two files of rows are needed; got {len(sys.argv) - 1}.\n\n{__doc__}")
    first, second = (json.loads(Path(name).read_text()) for name in sys.argv[1:])
    for each in dict.fromkeys((row["model"], row["batch"], row["threads"]) for row in first):
        print("\n".join(table(first, second, each)))
