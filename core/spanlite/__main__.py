"""`python -m spanlite`."""

import sys

from spanlite.cli.main import main

sys.exit(main())
