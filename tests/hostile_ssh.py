"""Stands in for ssh and a hostile host. The variable HOSTILE names a JSON file with the messages that the host sends
after each request, and at the start ("hello"). A message with "flood" is sent again and again, without end. Before the
event "silence" the host sleeps. "stderr" is the number of long lines that are first printed to standard error."""

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    prepared = json.loads(Path(os.environ["HOSTILE"]).read_text())
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    source.readline()
    secret, size = source.readline().split()
    source.read(int(size))
    for _ in range(prepared.get("stderr", 0)):
        sys.stderr.write("x" * 65535 + "\n")

    def tell(messages: list[dict[str, object]]) -> None:
        for message in messages:
            line = secret + b" M " + json.dumps(message).encode() + b"\n"
            if message.get("event") == "silence":
                time.sleep(3600)
            while True:
                sink.write(line)
                sink.flush()
                if not message.get("flood"):
                    break

    tell(prepared["hello"])
    for line in source:
        if line.strip():
            tell(prepared.get(json.loads(line)["do"], []))


if __name__ == "__main__":
    main()
