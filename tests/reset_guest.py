"""Resets the guest whose QEMU listens on a socket. Tests use this program as --power-cycle of a guest that stands for
a host."""

import socket
import sys

from fixtures.guest.qmp import Qmp

if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(sys.argv[1])
        Qmp(control, 60.0).execute("system_reset")
