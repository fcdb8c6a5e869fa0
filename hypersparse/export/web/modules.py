"""The JavaScript modules of the runtime: as files for npm, and as one script for a page."""

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from importlib.resources import files

from hypersparse_runtime.compile_wasm import WASM
from hypersparse_runtime.functions import FUNCTIONS, KERNEL_OPERATORS, OPERATORS
from hypersparse_runtime.kernel_tables import FIELDS, KINDS

ENTRY, KERNEL = "index", "kernel"
IMPORT = re.compile(r'^import \{\s+([^}]*?)\s+\} from "\./(\w+)\.js";$', re.MULTILINE)
REEXPORT = re.compile(r'^export \{ ([^}]*) \} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) )", re.MULTILINE)
EXPORTED = re.compile(r"^export (?:async )?(?:const|function|class) (\w+)", re.MULTILINE)
COMMENT = re.compile(r"^\s*(?://.*|/\*\*.*\*/|/\*\*$[\s\S]*?\*/)$\n", re.MULTILINE)
TRAILING = re.compile(r"\s+// [^`\"'\n]*$", re.MULTILINE)  # comments behind code; quotes might mean a string
INDENT = re.compile(r"^ +", re.MULTILINE)


def modules() -> Mapping[str, str]:
    """The text of every module by name, including the kernel."""
    folder = files(__package__) / "runtime"
    found = {
        path.name.removesuffix(".js"): path.read_text(encoding="utf-8")
        for path in folder.iterdir()
        if path.name.endswith(".js")
    }
    return {**found, KERNEL: _kernel()}


def bundle() -> str:
    """The runtime as one script, each module in its own scope; it ends with the exports of `index.js`."""
    texts = modules()
    parts = [_scoped(name, texts[name]) for name in _in_order(texts)]
    exported = [names for names, _ in REEXPORT.findall(texts[ENTRY])]
    imports = REEXPORT.sub(r"const { \1 } = $\2;", texts[ENTRY])
    assert exported, "index.js exports by `export { names } from`"
    return smaller("".join(parts) + imports)


def smaller(script: str) -> str:
    """A script without comments and indentation. It must not contain multi-line strings.

    >>> smaller("// a\\nif (b) {\\n  c(); // d\\n}\\n")
    'if (b) {\\nc();\\n}\\n'
    """
    return INDENT.sub("", TRAILING.sub("", COMMENT.sub("", script)))


def _kernel() -> str:
    """The compiled kernel, deflated, so that a page needs no second request, and what the numbers in its steps mean."""
    code = base64.b64encode(zlib.compress(WASM.read_bytes(), 9)).decode()
    functions = {name: {"keepsZero": each.keeps_zero, "parameter": each.parameter} for name, each in FUNCTIONS.items()}
    swapped = {name: each.swapped for name, each in OPERATORS.items() if each.swapped}
    lists = {
        "fields": FIELDS,
        "kinds": KINDS,
        "functions": functions,
        "operators": KERNEL_OPERATORS,
        "swapped": swapped,
    }
    content = json.dumps({**lists, "code": code})
    comment = "/** The WebAssembly kernel, deflated, and what the numbers in its steps mean. */"
    return f"{comment}\nexport const KERNEL = {content};\n"


def _in_order(texts: Mapping[str, str]) -> Iterator[str]:
    """The modules, each after its imports."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name in done:
            return
        done.add(name)
        for _, needed in IMPORT.findall(texts[name]):
            yield from visit(needed)
        yield name

    for _, needed in REEXPORT.findall(texts[ENTRY]):
        yield from visit(needed)


def _scoped(name: str, text: str) -> str:
    exported = ", ".join(EXPORTED.findall(text))
    body = EXPORT.sub("", IMPORT.sub(r"const { \1 } = $\2;", text))
    return f"const ${name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n"
