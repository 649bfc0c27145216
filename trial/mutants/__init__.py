"""The catalogue of mutants by topic. Mutants of the reference are here, of real calls in calls/, of the data path in
data_path/. A mutant violates one rule, or makes a choice that a rule leaves open. Its name is an id and never changes.
A mutant is never changed to make a case detect it. trial/catalogue.py lists all mutants."""
