"""Makes C programs from the description of a case. They show the case with libibverbs alone, without this suite.
Nothing here calls the engine's C code or runs a case, so that the programs check the engine independently.
trial/reproduction.py runs the programs."""
