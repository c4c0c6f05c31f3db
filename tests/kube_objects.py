"""Small pieces of Kubernetes objects that tests of `kube` write."""

from __future__ import annotations

from collections.abc import Mapping

from paddleflow.kube import resources
from paddleflow.kube.resources import Object, View


def owner_reference(owner: View, *, controller: bool = True, block: bool = True) -> Object:
    """What makes an object the child of `owner`: it goes when the owner goes."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": resources.name(owner),
        "uid": resources.uid(owner),
        "controller": controller,
        "blockOwnerDeletion": block,
    }


def metadata(
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: View | None = None,
) -> Object:
    """Without what is empty."""
    found: Object = {"name": name}
    if namespace:
        found["namespace"] = namespace
    if labels:
        found["labels"] = dict(labels)
    if annotations:
        found["annotations"] = dict(annotations)
    if owner is not None:
        found["ownerReferences"] = [owner_reference(owner)]
    return found
