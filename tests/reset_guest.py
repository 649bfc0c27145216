"""Resets the guest whose QEMU listens on a socket; tests use this as the power command of a host that is a guest."""

import socket
import sys

from fixtures.guest.qmp import Qmp

if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(sys.argv[1])
        Qmp(control, 60.0).execute("system_reset")
