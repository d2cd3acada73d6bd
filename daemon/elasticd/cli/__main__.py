"""`python -m elasticd.cli`, for children of `elasticd run`: the same program, the same Python."""

import sys

from elasticd.cli import main

sys.exit(main())
