"""The catalogue of mutants of the reference by topic. A mutant violates one rule, or uses a choice that a rule leaves
open. Its name is an id and never changes. Its code is never adapted to a case. trial/catalogue.py lists all mutants."""
