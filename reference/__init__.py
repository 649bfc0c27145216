"""A reference implementation of the documents, for putting the suite itself to the test.

It stands behind the interface of the exact calls (conformance.bench) and needs neither device nor kernel module nor
library. It is written from the manual pages and the rules; where these leave something open it takes one of the
ways, which no case may count on. `rdma-cts run` never chooses it. Not for tests of real devices.
"""

from __future__ import annotations
