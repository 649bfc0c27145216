"""Makes C programs from the description of a case. The programs show the case with libibverbs only, without this suite.
This package neither calls the engine's C code nor runs a case, so that the programs check the engine independently.
trial/reproduction.py runs the programs."""
