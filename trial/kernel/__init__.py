"""Mutants of a real driver: changes of the mended rxe that break a rule, or do what the documents leave open.

`rxe/` has them, one file for each file of the driver. mutant.py reads them, modules.py compiles them, inside.py runs
cases in the guest, guest.py speaks with it, trying.py judges, report.py reports. Not for the mended stack itself
(fixtures/guest/mended/).
"""
