"""The command line; see __main__.py."""
