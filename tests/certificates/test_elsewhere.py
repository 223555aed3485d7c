"""Whoever verifies needs Python and a few libraries, not the operating system of whoever signed."""

import subprocess
import sys
from pathlib import Path

AUDITOR = Path(__file__).parents[2] / "docs" / "auditor"
# What Windows does not have.
WITHOUT_POSIX = """
import os, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("O_DIRECTORY", "O_NOFOLLOW", "fchmod", "fork", "geteuid", "getuid", "pwrite"):
    delattr(os, name)
from rescind.cli import app
app()
"""


def test_a_certificate_is_verified_without_what_only_posix_has():
    words = ["verify", "certificate.json", "--key", "operator.key.pub", "--model", "model.safetensors"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *words],
        cwd=AUDITOR,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Verified")
