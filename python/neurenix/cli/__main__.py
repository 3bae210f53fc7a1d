"""`python -m neurenix.cli`."""

import sys

from neurenix.cli import main

sys.exit(main())
