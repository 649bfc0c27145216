"""C programs that are made from the description of a case, and show the case with libibverbs alone, without this suite.

Nothing here calls the engine's C code or runs a case, so that the programs check the engine independently. Not for
running the programs (trial/reproduction.py) and not for choosing what to report (commands/).
"""
