"""A reference implementation of the documents in Python, for testing the suite itself.

The reference implements the interface `conformance.bench` and needs no device, kernel module or library. It follows the
manual pages and the rules. If these allow several results, the reference has one of them, and no case may depend on the
choice. `rdma-cts run` never uses the reference. Each decision is a method, so that an injected violation can override
exactly one decision.
"""
