"""``python -m trainonce``, the command."""

import sys

from trainonce.cli import main

if __name__ == "__main__":
    sys.exit(main())
