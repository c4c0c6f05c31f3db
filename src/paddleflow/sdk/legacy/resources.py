"""The old calls for users, queues, flavours and storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddleflow.sdk.legacy import info
from paddleflow.sdk.legacy.calls import Calls, Done, Options, count, translated


class Resources(Calls):
    """Users, queues, flavours, storages."""

    @translated
    def add_user(self, user_name: str, password: str) -> Done:
        self._pf.users.create(user_name, password)
        return True, None

    @translated
    def del_user(self, user_name: str) -> Done:
        self._pf.users.delete(user_name)
        return True, None

    @translated
    def update_password(self, name: str, password: str) -> Done:
        self._pf.users.set_password(name, password)
        return True, None

    @translated
    def list_user(self, maxsize: int = 100) -> tuple[bool, list[info.UserInfo]]:
        page = self._pf.users.page(max_keys=count(maxsize, "maxsize"))
        return True, [info.UserInfo.of(user.raw) for user in page]

    @translated
    def add_queue(
        self,
        name: str,
        namespace: str,
        clusterName: str | None,  # noqa: N803
        maxResources: Mapping[str, object],  # noqa: N803
        minResources: Options = None,  # noqa: N803
        schedulingPolicy: Sequence[str] | None = None,  # noqa: N803
        location: Options = None,
        quotaType: str | None = None,  # noqa: N803
    ) -> Done:
        self._pf.queues.create(
            name,
            namespace,
            maxResources,
            minimum=minResources or None,
            cluster=clusterName or None,
            quota_type=quotaType or None,
            scheduling_policy=schedulingPolicy or None,
            location=location or None,
        )
        return True, None

    @translated
    def update_queue(
        self,
        queuename: str,
        maxResources: Options = None,  # noqa: N803
        minResources: Options = None,  # noqa: N803
        schedulingPolicy: Sequence[str] | None = None,  # noqa: N803
        location: Options = None,
    ) -> Done:
        self._pf.queues.update(
            queuename,
            maximum=maxResources or None,
            minimum=minResources or None,
            scheduling_policy=schedulingPolicy or None,
            location=location or None,
        )
        return True, None

    @translated
    def del_queue(self, queuename: str) -> Done:
        self._pf.queues.delete(queuename)
        return True, None

    @translated
    def grant_queue(self, username: str, queuename: str) -> Done:
        self._pf.grants.create(username, queuename)
        return True, None

    @translated
    def ungrant_queue(self, username: str, queuename: str) -> Done:
        self._pf.grants.delete(username, queuename)
        return True, None

    @translated
    def list_queue(
        self, maxsize: int = 100, marker: str | None = None
    ) -> tuple[bool, list[info.QueueInfo], str | None]:
        page = self._pf.queues.page(max_keys=count(maxsize, "maxsize"), marker=marker)
        return True, [info.QueueInfo.of(queue.raw) for queue in page], page.next_marker

    @translated
    def show_queue(self, queuename: str) -> tuple[bool, info.QueueInfo]:
        return True, info.QueueInfo.of(self._pf.queues.get(queuename).raw)

    @translated
    def show_queue_grant(self, username: str | None = None, maxsize: int = 100) -> tuple[bool, list[info.GrantInfo]]:
        page = self._pf.grants.page(user=username, max_keys=count(maxsize, "maxsize"))
        return True, [info.GrantInfo.of(grant.raw) for grant in page if grant.resource_type == "queue"]

    @translated
    def list_flavour(
        self, maxsize: int = 100, marker: str | None = None, clustername: str = "", key: str = ""
    ) -> tuple[bool, list[info.FlavourInfo], str | None]:
        page = self._pf.flavours.page(
            max_keys=count(maxsize, "maxsize"), marker=marker, cluster=clustername or None, name=key or None
        )
        return True, [info.FlavourInfo.of(flavour.raw) for flavour in page], page.next_marker

    @translated
    def show_flavour(self, name: str) -> tuple[bool, info.FlavourInfo]:
        return True, info.FlavourInfo.of(self._pf.flavours.get(name).raw)

    @translated
    def add_flavour(
        self, name: str, cpu: str, memory: str, scalar_resources: Options = None, cluster_name: str | None = None
    ) -> Done:
        self._pf.flavours.create(name, cpu, memory, scalars=scalar_resources, cluster=cluster_name or None)
        return True, None

    @translated
    def update_flavour(
        self,
        name: str,
        cpu: str | None = None,
        memory: str | None = None,
        scalar_resources: Options = None,
        cluster_name: str | None = None,
    ) -> tuple[bool, str]:
        self._pf.flavours.update(
            name, cpu=cpu or None, mem=memory or None, scalars=scalar_resources or None, cluster=cluster_name or None
        )
        return True, name

    @translated
    def del_flavour(self, name: str) -> Done:
        self._pf.flavours.delete(name)
        return True, None

    @translated
    def add_fs(self, fsname: str, url: str, username: str | None = None, properties: Options = None) -> Done:
        self._pf.storages.create(fsname, url, user=username or None, properties=properties or None)
        return True, None

    @translated
    def show_fs(self, fsname: str, username: str | None = None) -> tuple[bool, list[info.FSInfo]]:
        """A list of one."""
        return True, [info.FSInfo.of(self._pf.storages.get(fsname, user=username).raw)]

    @translated
    def list_fs(self, username: str | None = None, maxsize: int = 100) -> tuple[bool, list[info.FSInfo]]:
        page = self._pf.storages.page(user=username, max_keys=count(maxsize, "maxsize"))
        return True, [info.FSInfo.of(storage.raw) for storage in page]

    @translated
    def delete_fs(self, fsname: str, username: str | None = None) -> Done:
        self._pf.storages.delete(fsname, user=username)
        return True, None

    @translated
    def add_link(
        self, fsname: str, fspath: str, url: str, username: str | None = None, properties: Options = None
    ) -> Done:
        self._pf.storages.link(fsname, fspath, url, properties=properties or None, user=username or None)
        return True, None

    @translated
    def delete_link(self, fsname: str, fspath: str, username: str | None = None) -> Done:
        self._pf.storages.unlink(fsname, fspath, user=username or None)
        return True, None

    @translated
    def list_link(
        self, fsname: str, username: str | None = None, maxsize: int = 100
    ) -> tuple[bool, list[info.LinkInfo]]:
        page = self._pf.storages.link_page(fsname, max_keys=count(maxsize, "maxsize"), user=username or None)
        return True, [info.LinkInfo.of(link.raw) for link in page]

    @translated
    def show_link(
        self, fsname: str, fspath: str, username: str | None = None
    ) -> tuple[bool, list[info.LinkInfo] | str]:
        """A list of one; `(False, message)` when there is none."""
        page = self._pf.storages.link_page(fsname, path=fspath, user=username or None)
        found = [info.LinkInfo.of(link.raw) for link in page]
        return (True, found) if found else (False, f"fs[{fsname}] has no link at {fspath}")

    @translated
    def create_cache(self, fsname: str, options: Options = None, username: str | None = None) -> Done:
        self._pf.storages.create_cache(fsname, options or {}, user=username or None)
        return True, None

    @translated
    def update_fs_cache(self, fsname: str, params: Options = None, username: str | None = None) -> Done:
        self._pf.storages.update_cache(fsname, params or {}, user=username or None)
        return True, None

    @translated
    def get_fs_cache(self, fsname: str, username: str | None = None) -> tuple[bool, info.FSCacheInfo]:
        return True, info.FSCacheInfo.of(self._pf.storages.get_cache(fsname, user=username or None).raw)

    @translated
    def delete_fs_cache(self, fsname: str, username: str | None = None) -> Done:
        self._pf.storages.delete_cache(fsname, user=username or None)
        return True, None
