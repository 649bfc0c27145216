"""Makes the pictures of the report in docs/images/ anew: python3 docs/pictures.py. Needs chromium, chromium-driver,
python3-selenium, pngquant and poppler-utils. The runs are those of docs/runs/, so the pictures show what a reader can
make."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    sys.exit(__doc__)

DOCS = Path(__file__).resolve().parent
IMAGES, RUNS = DOCS / "images", DOCS / "runs"
SIZE = (1280, 1000)
_ARGUMENTS = ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-gpu")
_PAPER = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}
# For each picture: the runs, the colour scheme, and a script that runs before the picture is taken.
PICTURES = {
    "report-light": (("rxe",), "light", ""),
    "report-dark": (
        ("rxe",),
        "dark",
        "document.getElementById('group:ibv_reg_mr').open = true;"
        "document.getElementById('rules').scrollIntoView()",
    ),
    "report-runs": (("rxe", "trixie", "siw"), "light", ""),
}


def main() -> None:
    options = webdriver.ChromeOptions()
    for argument in (*_ARGUMENTS, f"--window-size={SIZE[0]},{SIZE[1]}"):
        options.add_argument(argument)
    with (
        tempfile.TemporaryDirectory() as scratch,
        webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options) as browser,
    ):
        for name, (runs, scheme, script) in PICTURES.items():
            _show(browser, Path(scratch) / "page.html", runs, scheme)
            browser.execute_script(script)
            _write(name, browser.get_screenshot_as_png())
        _show(browser, Path(scratch) / "page.html", ("rxe",), "light")
        printed = browser.execute_cdp_cmd("Page.printToPDF", _PAPER)["data"]
        first = [
            "pdftoppm",
            "-png",
            "-singlefile",
            "-scale-to-x",
            "794",
            "-scale-to-y",
            "1123",
            "-",
        ]
        done = subprocess.run(first, input=base64.b64decode(printed), stdout=-1, check=True)
        _write("report-print", done.stdout)


def _show(browser: webdriver.Chrome, page: Path, runs: tuple[str, ...], scheme: str) -> None:
    files = [str(RUNS / f"{run}.jsonl.xz") for run in runs]
    command = [sys.executable, "-m", "commands", "report", *files, "--format", "html"]
    subprocess.run([*command, "--out", str(page)], cwd=DOCS.parent, check=True)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())


def _write(name: str, picture: bytes) -> None:
    """Writes a picture with 40 colours, which needs less than half of the bytes."""
    done = subprocess.run(["pngquant", "40", "-"], input=picture, stdout=-1, check=True)
    (IMAGES / f"{name}.png").write_bytes(done.stdout)
    print(f"{name}.png: {len(done.stdout):,} bytes")


if __name__ == "__main__":
    needed = ("chromium", "chromedriver", "pngquant", "pdftoppm")
    if sys.argv[1:] or not all(map(shutil.which, needed)):
        sys.exit(__doc__)
    main()
