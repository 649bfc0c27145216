"""The command line; see __main__.py. When run as a program, the suite keeps its bytecode in its own cache."""

import sys

from fixtures.system import cache

if sys.argv[:1] == ["-m"]:  # Python looks for the program in this package
    cache.keep(sys.orig_argv)
