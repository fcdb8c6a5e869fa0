"""`python -m hypersparse.export.web FOLDER`: write the npm package `hypersparse-web` into a folder."""

import sys

from hypersparse.export.web.package import write_package

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Usage: python -m hypersparse.export.web FOLDER")
    sys.stdout.write(f"{write_package(sys.argv[1])}\n")
