"""C programs that show one case without this suite: libibverbs alone, made from the case's description.

Nothing here calls the engine's C, nor runs a case: the programs are a second opinion on it. Not for running them
(trial/programs.py) and not for choosing what to report (commands/).
"""
