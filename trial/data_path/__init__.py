"""How requests and completions are altered, on the real stack and before the reference (trial/mutants/data_path/)."""
