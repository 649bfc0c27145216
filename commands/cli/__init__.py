"""Provides what all commands share: the parser, the options of a run, standard output, `--out`, signals and errors."""
