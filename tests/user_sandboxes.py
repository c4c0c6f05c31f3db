"""Runs jobs of two users in a local runtime, as the account that calls it: ``python -m tests.user_sandboxes FOLDER``.

For tests that run as root and start this as an ordinary account. FOLDER is the account's own. Prints what is in force, and exit code,
message and log of each job, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.runtime import Mount
from tests.patience import soon
from tests.runtime_scene import Scene, open_local, opened


def scripts(folder: Path) -> dict[str, str]:
    data = folder / "data"
    return {
        "hostile": f"""
            cat {folder}/secret {data}/token /proc/*/root{data}/token; ls {folder} {data}
            touch /usr/changed /opt/changed {folder}/changed; kill -9 1
            unshare -rm sh -c 'umount -l /tmp; umount {data}; cat {data}/token'; cat ../../../*/*/w*k/file
            cp /bin/true own; chmod 4755 own; find . -perm /6000; exit 0""",
        "sees": "echo $$; grep -c . mounted/there; echo new > mounted/new; echo x > /tmp/file; cat /tmp/file; grep NoNewPrivs /proc/self/status",
        "leaves": "env -i setsid sleep 4711 & sleep 0.1; exit 0",
        "fails": "exit 4",
        "dies": "kill -9 $$",
        "missing": "",
    }


async def run(scene: Scene, folder: Path) -> dict[str, object]:
    runtime = scene.runtime
    assert isinstance(runtime, LocalRuntime)
    await soon(lambda: bool(runtime.isolation))
    (folder / "data" / "token").write_text("server-secret")
    mount = Mount("fs", "/opt/paddleflow-test/mounted", str(folder / "source"))
    found: dict[str, object] = {"isolation": runtime.isolation}
    for name, script in scripts(folder).items():
        launch = scene.launch(name, "no-such-command") if not script else scene.shell(name, f"exec 2>&1; {script}")
        launch = replace(launch, user="alice", working_dir="")
        if name == "sees":
            script = script.replace("mounted", mount.target)
            launch = replace(launch, mounts=(mount,), command=("sh", "-c", script))
        end = await scene.run(launch)
        log = (await scene.log_of(launch)).decode() if end.exit_code is not None else ""
        found[name] = [end.exit_code, end.message, log]
    own = await scene.run(scene.shell("own", f"cat {folder}/secret"))
    return {**found, "own": [own.exit_code, own.message, (await scene.log_of(scene.shell("own", ""))).decode()]}


async def main(folder: Path) -> None:
    (folder / "source").mkdir()
    (folder / "source" / "there").write_text("one\n")
    (folder / "secret").write_text("home-secret")
    async with opened(open_local, folder) as scene:
        print(json.dumps(await run(scene, folder)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
