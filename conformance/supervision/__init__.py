"""Runs cases in worker processes and records their results, even if a worker dies.

A worker is one instance of the kernel or process under test: a guest, or pytest on a device of this host. Several
workers may run at the same time. Each worker sends records, one per line. If a worker dies or sends no record until the
deadline, its case in flight gets CRASH or HANG, and another worker runs the remaining cases. fixtures/ starts the
workers.
"""
