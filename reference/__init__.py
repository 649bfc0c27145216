"""A reference implementation of the documents in Python, for testing the suite itself.

It implements the interface `conformance.bench` and needs no device, kernel module or library. It follows the manual
pages and the rules. Where these leave something open it does one of the allowed things, and no case may depend on
which. `rdma-cts run` never uses it. Not for testing real devices.
"""
