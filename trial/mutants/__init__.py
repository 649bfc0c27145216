"""The catalogue of mutants by topic: of the reference here, of real calls in calls/, of the data path in data_path/.

A mutant violates one rule, or makes a choice that a rule leaves open. Its name is an id and never changes; it is never
changed to be detected. Not for the list of all (trial/catalogue.py).
"""
