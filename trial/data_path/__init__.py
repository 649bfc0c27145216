"""Alters requests and completions on the real stack and on the reference. The alterations are in
trial/mutants/data_path/."""
