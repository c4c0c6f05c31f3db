"""A real HDFS on this machine's loopback, plain or with Kerberos and a real key server, for tests.

`scripts/stores hdfs` installs the mini cluster. `NotInstalled` says in one line what is absent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.ports import free_ports
from scripts.lib.s3_servers import NotInstalled, program

START_SECONDS = 180.0
REALM = "PADDLEFLOW.TEST"
_SOURCE = Path(__file__).parent / "MiniCluster.java"


@dataclass
class KeyServer:
    """A Kerberos realm of its own."""

    folder: Path
    port: int

    @property
    def config(self) -> Path:
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        return {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def administer(self, command: str) -> None:
        words = ["/usr/sbin/kadmin.local", "-r", REALM, "-q", command]
        done = subprocess.run(words, env={**os.environ, **self.environment}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def keytab(self, name: str, *principals: str) -> Path:
        path = self.folder / name
        for principal in principals:
            self.administer(f"addprinc -randkey {principal}@{REALM}")
            self.administer(f"ktadd -k {path} {principal}@{REALM}")
        return path


@dataclass
class MiniCluster:
    port: int
    process: subprocess.Popen[str]


@contextmanager
def key_server() -> Iterator[KeyServer]:
    for needed in ("/usr/sbin/krb5kdc", "/usr/sbin/kadmin.local", "/usr/sbin/kdb5_util", "/usr/bin/kinit"):
        if not Path(needed).exists():
            raise NotInstalled("no Kerberos here (Debian: apt-get install krb5-kdc krb5-admin-server krb5-user)")
    with tempfile.TemporaryDirectory(prefix="pf-kdc-") as place:
        made = KeyServer(Path(place), free_ports(1)[0])
        address = f"127.0.0.1:{made.port}"
        made.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n"
            f" rdns = false\n udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  kdc = {address}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )
        (made.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = {address}\n kdc_tcp_listen = {address}\n[realms]\n {REALM} = {{\n"
            f"  database_name = {place}/principal\n  key_stash_file = {place}/stash\n  acl_file = {place}/acl\n }}\n"
        )
        environment = {**os.environ, **made.environment}
        create = ["/usr/sbin/kdb5_util", "-r", REALM, "create", "-s", "-P", "only for tests"]
        subprocess.run(create, env=environment, check=True, capture_output=True)
        with (made.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["/usr/sbin/krb5kdc", "-n", "-r", REALM], env=environment, stdout=log, stderr=log
            )
        try:
            yield made
        finally:
            process.kill()
            process.wait()


@contextmanager
def mini_cluster(kerberos: KeyServer | None = None, *, protection: str = "") -> Iterator[MiniCluster]:
    command = program("hdfs-mini-cluster")
    with tempfile.TemporaryDirectory(prefix="pf-hdfs-") as place:
        settings = {"dfs.replication": "1", "dfs.namenode.fs-limits.min-block-size": "1024"}
        options = f"-Djava.net.preferIPv4Stack=true -Djava.io.tmpdir={place}"
        if kerberos is not None:
            settings |= _secured(kerberos.keytab("servers.keytab", "hdfs/localhost", "HTTP/localhost"), protection)
            options += f" -Djava.security.krb5.conf={kerberos.config}"
        words = [str(command), str(_SOURCE), f"{place}/dfs", *(f"{name}={value}" for name, value in settings.items())]
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=place,
            env={**os.environ, "JAVA_OPTIONS": options},
            start_new_session=True,
        )
        try:
            yield MiniCluster(_read_port(process), process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _secured(keytab: Path, protection: str) -> dict[str, str]:
    server, web = f"hdfs/localhost@{REALM}", f"HTTP/localhost@{REALM}"
    settings = {
        "login.principal": server,
        "login.keytab": str(keytab),
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.auth_to_local": "DEFAULT",
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",
        "dfs.web.authentication.kerberos.principal": web,
        "dfs.web.authentication.kerberos.keytab": str(keytab),
    }
    for part in ("namenode", "datanode"):
        settings[f"dfs.{part}.kerberos.principal"] = server
        settings[f"dfs.{part}.keytab.file"] = str(keytab)
        settings[f"dfs.{part}.kerberos.internal.spnego.principal"] = web
    if protection:
        settings["dfs.data.transfer.protection"] = protection
    return settings


def _read_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    deadline, last = time.monotonic() + START_SECONDS, ""
    watch = threading.Timer(START_SECONDS, process.kill)
    watch.start()
    try:
        for line in process.stdout:
            if line.startswith("port "):
                threading.Thread(target=_drain, args=(process,), daemon=True).start()
                return int(line.split()[1])
            last = (last + line)[-3000:]
    finally:
        watch.cancel()
    late = ", too late" if time.monotonic() > deadline else ""
    raise AssertionError(f"the mini cluster of HDFS ended{late}: {last}")


def _drain(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    try:
        for _ in process.stdout:
            pass
    except ValueError:  # closed meanwhile
        return
