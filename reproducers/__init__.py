"""C programs that show one case with libibverbs alone, without this suite, made from the case's description.

Nothing here calls the engine's C code or runs a case, so that the programs check the engine independently. Not for
running them (targets/programs.py) and not for choosing what to report (commands/).
"""
