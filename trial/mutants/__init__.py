"""The catalogue of mutants by topic. Mutants of the reference are in this folder, mutants of real calls in calls/, and
mutants of the data path in data_path/. A mutant violates one rule, or uses a choice that a rule leaves open. Its name
is an id and never changes. Its code is never adapted to a case. trial/catalogue.py lists all mutants."""
