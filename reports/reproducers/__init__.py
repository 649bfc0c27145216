"""Makes C programs from the description of a case. The programs show the case with libibverbs only, without this suite.
The programs have neither the C code nor the judging of conformance/, so that they check a verdict independently.
trial/reproduction.py runs the programs."""
