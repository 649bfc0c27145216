"""A reference implementation of the documents in Python, for tests of the suite itself.

The reference implements the interface `conformance.bench` and needs no device, kernel module or library. It follows the
manual pages and the rules. If the documents permit several results, no case may depend on which of them the reference
returns. `rdma-cts run` never uses the reference. Each decision is a method, so that a mutant can override exactly one
decision.
"""
