"""Has mutants of real drivers: changes of the mended rxe or of siw. A mutant violates a rule, or uses a choice that the
documents leave open.

The mutants are in `rxe/` and `siw/`, mostly with one file for each file of the driver. mutant.py reads them, modules.py
compiles them, inside.py runs cases in the guest, guest.py communicates with the guest, trying.py judges, and report.py
reports. The mended stack itself is in fixtures/guest/mended/.
"""
