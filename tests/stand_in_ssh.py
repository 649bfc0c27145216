"""Stands in for ssh: runs the command for the host on this machine, and forwards its input and output. If this program
is killed, the connection breaks at both ends, as with ssh. Variables select further failures. With STAND_IN_STATUS the
program does not connect: it prints the file STAND_IN_SAYS and exits with that status, or hangs if the status is empty.
With STAND_IN_BYTES the connection breaks after that many bytes from the host."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

_CHUNK = 1 << 16


def main() -> None:
    Path(os.environ["STAND_IN_PIDS"], str(os.getpid())).touch()
    if "STAND_IN_STATUS" in os.environ:
        print(Path(os.environ["STAND_IN_SAYS"]).read_text(), end="", file=sys.stderr, flush=True)
        if not os.environ["STAND_IN_STATUS"]:
            signal.pause()
        sys.exit(int(os.environ["STAND_IN_STATUS"]))
    bytes_left = int(os.environ.get("STAND_IN_BYTES", sys.maxsize))
    prefix = os.environ.get("STAND_IN_PREFIX", "")
    with (
        subprocess.Popen(
            ["sh", "-c", prefix + sys.argv[-1]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # as on a host, so that signals to this program do not reach the command
        ) as host
    ):
        assert host.stdin
        assert host.stdout
        sources = {0: host.stdin.fileno(), host.stdout.fileno(): 1}
        while host.stdout.fileno() in sources:
            for source in select.select(list(sources), [], [])[0]:
                data = os.read(source, _CHUNK)
                if source:
                    data, bytes_left = data[:bytes_left], bytes_left - len(data)
                try:
                    rest = memoryview(data)
                    while rest:
                        rest = rest[os.write(sources[source], rest) :]
                except BrokenPipeError:
                    data = b""
                if bytes_left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                if not data:
                    if not source:
                        host.stdin.close()
                    del sources[source]
    sys.exit(host.returncode)


if __name__ == "__main__":
    main()
