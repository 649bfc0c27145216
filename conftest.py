"""Loads the engine and the bench as pytest plugins."""

pytest_plugins = ["conformance.pytest_plugin.plugin", "fixtures.bench"]
