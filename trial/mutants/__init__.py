"""The catalogue of mutants by topic: of the reference here, of real calls in calls/, of the data path in data_path/.

A mutant violates one rule, or makes a choice that a rule leaves open. Its name is an id and never changes, and a mutant
is never changed so that it is detected. trial/catalogue.py lists all mutants.
"""
