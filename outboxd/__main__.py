"""`python -m outboxd`: the same as the command `outboxd`."""

import sys

from outboxd.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
