"""What all commands share: the parser, the options of a run, standard output, `--out`, and how a command ends."""
