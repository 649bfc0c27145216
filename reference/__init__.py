"""A reference implementation of the documents in Python, for testing the suite itself.

The reference implements the interface `conformance.bench` and needs no device, kernel module or library. It follows the
manual pages and the rules. If these allow several results, the reference has one of them, on which no case may depend.
`rdma-cts run` never uses it. Not for testing real devices.
"""
