"""Wiring only: the engine and the fixtures as pytest plugins."""

pytest_plugins = ["conformance.plugin", "fixtures.bench", "trial.plugin"]
