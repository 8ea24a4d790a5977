"""`python -m ctxkernel`: the command line, for where the script is not on the PATH."""

import sys

from ctxkernel.cli import main

sys.exit(main())
