"""Runs cases in worker processes and records their results, even if a worker dies.

A worker is one instance of the kernel or process under test: a guest, or pytest on a device of this host. Several may
run at the same time. Each streams records, one per line. If one dies or sends nothing until the deadline, its case in
flight gets CRASH or HANG, and another worker runs its remaining cases. Not for starting workers (fixtures/) and not
for judging.
"""

from conformance.supervision.recording import Recording, RunPlan
from conformance.supervision.supervisor import Supervisor
from conformance.supervision.worker import TRIES, Listener, Start, Worker, WorkerEnd

__all__ = ["TRIES", "Listener", "Recording", "RunPlan", "Start", "Supervisor", "Worker", "WorkerEnd"]
