"""Stands for the C program of a row of segments and for its device, in tests of the script that is the peer.

    python3 tests/stream_device.py right|wrong

The device executes RDMA WRITEs to its region and READs of the probe. It refuses a WRITE beyond the region with a Terminate
message whose bits have the order of siw; as `wrong` it executes it."""

from __future__ import annotations

import socket
import struct
import sys
import threading

from conformance.wire import mpa
from conformance.wire.segments import Segment, fields_of_terminate, parse_segment

PAGE = 4096
BUF, INBOX, PROBE = 0x10000, 0x20000, 0x30000
KEY, PROBE_KEY = 0x123, 0x456
REPLY = struct.pack(">16sBBH", mpa.REPLY_KEY, mpa.CRC, mpa.REVISION, 0)


def fill(size: int) -> bytearray:
    return bytearray(1 + (number * 5) % 127 for number in range(size))


class Device:
    def __init__(self, wrong: bool) -> None:
        self.buf, self.state, self._wrong = fill(4 * PAGE), "RTS", wrong
        self._reader = mpa.Reader()

    def serve(self, stream: socket.socket) -> None:
        while self.state == "RTS" and (received := stream.recv(1 << 16)):
            for packed, mistakes in self._reader.take(received):
                assert not mistakes
                if self.state == "RTS" and (answer := self._answer(packed)):
                    stream.sendall(mpa.frame(answer))
        stream.close()

    def _answer(self, packed: bytes) -> bytes:
        segment = parse_segment(packed)
        assert not segment.wrong
        fields = segment.fields
        if segment.operation == "RDMA_READ_REQUEST":
            assert (fields["rkey"], fields["va"], fields["length"]) == (PROBE_KEY, PROBE, 8)
            sink = {"rkey": fields["sinkstag"], "va": fields["sinkto"]}
            return Segment("RDMA_READ_RESPONSE", sink, bytes(8)).packed()
        at = fields["va"] - BUF
        inside = at >= PAGE and at + len(segment.data) <= 2 * PAGE
        if inside or self._wrong:
            self.buf[at : at + len(segment.data)] = segment.data
            return b""
        self.state = "ERR"
        error = fields_of_terminate("DDP_BASE_BOUNDS")
        swapped = {"layer": error["etype"], "etype": error["layer"], "code": error["code"]}
        return Segment("TERMINATE", {"msn": 1, "mo": 0, **swapped}).packed()


def main() -> None:
    device = Device(sys.argv[1] == "wrong")
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdin.readline()
    values = {"mr.addr": BUF + PAGE, "mr.rkey": KEY, "probe.addr": PROBE, "probe.rkey": PROBE_KEY}
    values |= {"memory.buf": BUF, "memory.inbox": INBOX, "page": PAGE, "device": 0x7F000001}
    for name, number in {**values, "port": listener.getsockname()[1]}.items():
        print(name, number)
    print("done", flush=True)
    sys.stdin.readline()
    stream, _ = listener.accept()
    stream.sendall(REPLY)
    assert stream.recv(mpa.FRAME_SIZE) == mpa.request()
    threading.Thread(target=device.serve, args=[stream], daemon=True).start()
    print("done", flush=True)
    for step in ("state", "names", "buf", "inbox"):
        sys.stdin.readline()
        told = {"state": device.state, "names": "buf inbox", "buf": device.buf.hex()}
        print("done", told.get(step, fill(2 * PAGE).hex()), flush=True)


main()
