"""Runs tests of Google's rdma-unit-test on a device, inside the guest.

    python3 unit_tests.pyz DEVICE TEST [TEST...]

The archive contains the program that build-rdma-unit-test.sh builds. A TEST is a name or a pattern of googletest.
Prints two JSON lines for each test: one when the test begins and one with the outcome. If the program exits during a
test, the program is started again for the remaining tests.
"""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

# The threads of these tests post READs without a pause: an emulated guest executes nothing else.
_LEFT_OUT = "MwType2AdvancedTest.*"
_MTU = 1024  # the MTU of the RDMA device; its network device has 1500
_OUTCOMES = {"RUN": "", "OK": "passed", "SKIPPED": "skipped", "FAILED": "failed"}
_LINE = re.compile(rf"\[ +({'|'.join(_OUTCOMES)}) +\] ([^\s,]+)")


def main() -> None:
    device, *chosen = sys.argv[1:]
    with zipfile.ZipFile(sys.argv[0]) as archive:
        program = Path(archive.extract("program", Path(sys.argv[0]).parent))
    program.chmod(0o755)
    ran = [_LEFT_OUT]
    running = "the first"
    while running:
        running = ""
        tests = f"--gtest_filter={':'.join(chosen)}-{':'.join(ran)}"
        command = [
            str(program),
            f"--device_name={device}",
            "--ipv4_only",
            f"--verbs_mtu={_MTU}",
            tests,
        ]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            for match in filter(None, map(_LINE.match, process.stdout)):
                outcome, test = match.groups()
                if outcome == "RUN":
                    running = test
                    ran.append(test)
                elif test != running:  # a line of the summary at the end
                    continue
                else:
                    running = ""
                print(json.dumps({"test": test, "outcome": _OUTCOMES[outcome]}), flush=True)
        if running:
            print(
                json.dumps({"test": running, "outcome": f"ended with status {process.returncode}"}),
                flush=True,
            )


if __name__ == "__main__":
    main()
