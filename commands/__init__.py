"""The command line; see __main__.py. The program keeps its bytecode in its own cache."""

import sys

from fixtures.system import cache

if sys.argv[:1] == ["-m"]:  # Python was started with `-m commands`
    cache.keep(sys.orig_argv)
