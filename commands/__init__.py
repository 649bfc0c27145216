"""The command line; see __main__.py. The program writes its bytecode to its own cache directory."""

import sys

from fixtures.system import cache

if sys.argv[:1] in (["-m"], ["-c"]):  # Python was started for this command
    cache.keep(sys.argv[1:])
