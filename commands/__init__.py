"""The command line; see __main__.py. The program writes its bytecode to its own cache directory."""

import sys

from fixtures.system import cache

if sys.argv[:1] == ["-m"]:  # Python was started with `-m commands`
    cache.keep(sys.orig_argv)
