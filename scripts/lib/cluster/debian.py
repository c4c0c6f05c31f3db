"""Packages from Debian for real nodes and images: asked for by name, installed when missing and we may."""

from __future__ import annotations

import os
import shutil
import subprocess

from scripts.lib.cluster.errors import ClusterError, say

NODE_PACKAGES = ("containerd", "runc", "containernetworking-plugins", "iptables", "iproute2", "busybox-static")


def require_root(what: str) -> None:
    if os.geteuid() != 0:
        raise ClusterError(f"{what} needs root", "run it as root; a control plane alone (--nodes 0) does not")


def missing(packages: tuple[str, ...]) -> list[str]:
    """Which of the packages are not installed."""
    if shutil.which("dpkg-query") is None:
        return list(packages)
    told = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")
    return [package for package in packages if f"{package} installed" not in told]


def install(packages: tuple[str, ...]) -> None:
    """Have the packages; nothing is asked of the network when they are all there."""
    wanted = missing(packages)
    if not wanted:
        return
    require_root(f"installing {' '.join(wanted)}")
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"not installed: {' '.join(wanted)}", "real nodes need a Debian; a control plane alone does not"
        )
    say(f"installing {' '.join(wanted)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *wanted]):
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            raise ClusterError(f"{' '.join(command)} failed:\n" + "\n".join(done.stdout.splitlines()[-10:]))


def mirror() -> list[str]:
    """The mirror that this Debian itself uses, as debootstrap's last argument; nothing on other systems."""
    try:
        with open("/etc/os-release") as release:
            if "ID=debian\n" not in release:
                return []
        told = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [line for line in told.stdout.splitlines() if line and "security" not in line][:1]
