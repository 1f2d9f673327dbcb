"""`python -m partita` is the command `partita`."""

import sys

from partita.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
