"""``python -m tidelog_server`` is ``tidelog serve``."""

import sys

from tidelog_cli import main

if __name__ == "__main__":
    main(["serve", *sys.argv[1:]])
