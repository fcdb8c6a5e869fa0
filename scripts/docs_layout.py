"""Hook of mkdocs: numbers stay with their units, cells with sentences are marked, and figures have one scale.

Figures open in full size, which phones need.
"""

import re
import struct
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

PIXELS_PER_INCH = 106  # 7 inches of a figure are the width of the text on a desktop
METRES_PER_INCH = 0.0254
LONGEST_WHOLE = 24  # characters of code that no line break divides
LONG = 30  # characters of a cell that needs room
LITERAL = re.compile(r"(<pre.*?</pre>|<svg.*?</svg>|<script.*?</script>|<iframe.*?</iframe>|<[^>]*>)", re.DOTALL)
UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMG]B|[kMG]iB|M|ms|us|s|h)(?![\w]))")
INTERVAL = re.compile(r"(?<=\d )(to|±) (?=[+-]?\d)")
SHORT_CODE = re.compile(rf"<code>(?=[^<]{{1,{LONGEST_WHOLE}}}</code>)")
CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
FIGURE = re.compile(r'(?<!">)<img ([^>]*?)src="([^":]+\.png)"([^>]*)>')


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change the text between tags, and the figures."""
    parts = LITERAL.split(html)
    parts[::2] = [INTERVAL.sub("\\1\N{NO-BREAK SPACE}", UNIT.sub("\N{NO-BREAK SPACE}", part)) for part in parts[::2]]
    whole = SHORT_CODE.sub('<code class="whole">', "".join(parts))
    return FIGURE.sub(lambda found: _figure(found, page, files), CELL.sub(_cell, whole))


def _cell(found: re.Match[str]) -> str:
    return f'<td class="long">{found[1]}</td>' if len(re.sub(r"<[^>]*>", "", found[1])) > LONG else found[0]


def _figure(found: re.Match[str], page: Page, files: Files) -> str:
    before, source, after = found.groups()
    here = Path(page.file.src_uri).parent
    file = files.get_file_from_path((here / unquote(source)).as_posix())
    inches = width_in_inches(Path(file.abs_src_path).read_bytes()) if file and file.abs_src_path else None
    width = f' width="{round(PIXELS_PER_INCH * inches)}"' if inches else ""
    return f'<a href="{source}"><img {before}src="{source}"{width}{after}></a>'


def width_in_inches(png: bytes) -> float | None:
    """The width by the resolution that the file stores; None without one.

    >>> header = b"........" + struct.pack(">I4sIIBBBBBI", 13, b"IHDR", 1400, 800, 8, 2, 0, 0, 0, 0)
    >>> width_in_inches(header + struct.pack(">I4sIIBI", 9, b"pHYs", 7874, 7874, 1, 0))
    7.0
    """
    pixels: int = struct.unpack_from(">I", png, 16)[0]
    place = png.find(b"pHYs", 0, 4096)
    if place < 0:
        return None
    per_metre: int = struct.unpack_from(">I", png, place + 4)[0]
    return round(pixels / (per_metre * METRES_PER_INCH), 2)
