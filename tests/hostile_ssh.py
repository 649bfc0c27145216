"""Stands in for ssh and a hostile host, or is the command that a real sshd executes. The variable HOSTILE names a JSON
file with the messages that the host sends after each request, at the start ("hello"), and before it reads anything
("first"). A message with "flood" is sent again and again, without end; "raw" are bytes, and "line" is a line of the
worker. At "exit" the host exits with this status. Before the event "silence" it sleeps. "stderr" is the number of long
lines that are first printed to standard error."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    prepared = json.loads(Path(os.environ["HOSTILE"]).read_text())
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    secret = b""

    def tell(messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if "exit" in message:
                os._exit(message["exit"])
            if message.get("event") == "silence":
                time.sleep(3600)
            line = secret + b" M " + json.dumps(message).encode() + b"\n"
            if "raw" in message:
                line = message["raw"].encode("latin-1")
            elif "line" in message:
                line = secret + b" L " + json.dumps(message["line"]).encode() + b"\n"
            while True:
                sink.write(line)
                sink.flush()
                if not message.get("flood"):
                    break

    tell(prepared.get("first", []))
    source.readline()
    secret, size = source.readline().split()
    source.read(int(size))
    for _ in range(prepared.get("stderr", 0)):
        sys.stderr.write("x" * 65535 + "\n")
    tell(prepared["hello"])
    for line in source:
        if line.strip():
            tell(prepared.get(json.loads(line)["do"], []))


if __name__ == "__main__":
    main()
