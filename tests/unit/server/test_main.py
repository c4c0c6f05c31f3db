"""What a server sets for its process before it serves: how soon a thread that computes lets the event loop on."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE

SCRIPT = """
import gc, sys
from paddleflow.server import main
from paddleflow.settings import Settings

async def serve(settings):
    print(sys.getswitchinterval() == main.SWITCH <= 0.002, gc.get_threshold() == main.COLLECTOR, gc.isenabled())

main.serve = serve
sys.exit(main.run(Settings()))
"""


def test_a_thread_that_computes_hands_over_soon() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["True"] * 3), done.stderr
