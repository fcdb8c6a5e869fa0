"""Let every reader read hostile files, in a process of its own: an audit hook cannot be taken away again."""

import json
import os
import sys
import traceback
import warnings
from pathlib import Path

from hypersparse_runtime.kernel_library import load_kernel
from tests.hostile import files
from tests.hostile.hook import MARK, Watch
from tests.hostile.readers import READERS


def bad(folder: Path) -> None:
    """A reader that does all that none may do."""
    sys.path.insert(0, str(folder))
    try:
        __import__(MARK)
        exec(compile(f"x = '{MARK}'", "a file", "exec"))
    finally:
        sys.path.remove(str(folder))


def main(folder: Path) -> dict[str, list[str]]:
    """What each reader did that it must not do, and the error it ended with, if that was not an answer."""
    warnings.simplefilter("ignore")
    load_kernel()
    files.make(folder)
    watch = Watch(folder)
    found: dict[str, list[str]] = {}
    os.chdir(folder)
    for name, read in {"bad": bad, **READERS}.items():
        sys.modules.pop(MARK, None)
        with watch.during() as problems:
            try:
                read(folder)
            except Exception:
                problems.append(traceback.format_exc())
        found[name] = list(problems)
        if (folder / "started").exists():
            found[name].append("a program was started")
            (folder / "started").unlink()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
