"""The command line; see __main__.py. As a program it keeps the suite's bytecode in the suite's own cache."""

import sys

from fixtures.system import cache

if sys.argv[:1] == ["-m"]:  # Python looks for the program in this package
    cache.keep(sys.orig_argv)
