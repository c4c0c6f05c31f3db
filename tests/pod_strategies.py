"""Random nodes and pods, small enough that their rules meet often. Shared by the tests against the reference and against
kube-scheduler itself."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.pod_placement_reference import request

APPS = ("a", "b")
SPACES = ("one", "two")
NAMESPACES = {"one": {"team": "x"}, "two": {"team": "y"}}
TOPOLOGIES = ("kubernetes.io/hostname", "zone", "rack")
RUNTIME_CLASS, OVERHEAD = "heavy", {"cpu": "250m", "memory": "64Mi"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

optional = st.sampled_from((False, False, True))


@st.composite
def nodes(draw: st.DrawFn, most: int = 5) -> list[dict[str, Any]]:
    found = []
    for number in range(draw(st.integers(1, most))):
        labels = {"kubernetes.io/hostname": f"n{number}", "disk": draw(st.sampled_from(("ssd", "hdd"))), "size": str(draw(st.integers(1, 3)))}  # fmt: skip
        if draw(st.sampled_from((True, True, False))):
            labels["zone"] = draw(st.sampled_from(("z0", "z1")))
        if draw(st.booleans()):
            labels["rack"] = draw(st.sampled_from(("r0", "r1")))
        spec: dict[str, Any] = {}
        if draw(optional):
            effect = draw(st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule")))
            spec["taints"] = [{"key": "dedicated", "value": draw(st.sampled_from(("x", "y"))), "effect": effect}]
        if draw(st.sampled_from((False, False, False, True))):
            spec["unschedulable"] = True
        room = {
            "cpu": draw(st.sampled_from(("2", "4"))),
            "memory": draw(st.sampled_from(("2Gi", "8Gi"))),
            "pods": draw(st.sampled_from(("2", "10"))),
        }
        if draw(optional):
            room["example.com/gpu"] = "2"
        found.append(
            {"metadata": {"name": f"n{number}", "labels": labels}, "spec": spec, "status": {"allocatable": room}}
        )
    return found


selectors: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(APPS).map(lambda app: {"matchLabels": {"app": app}}),
    st.just({"matchExpressions": [{"key": "app", "operator": "In", "values": list(APPS)}]}),
    st.just({}),
)


@st.composite
def pod_terms(draw: st.DrawFn) -> dict[str, Any]:
    term: dict[str, Any] = {"topologyKey": draw(st.sampled_from(TOPOLOGIES)), "labelSelector": draw(selectors)}
    match draw(st.integers(0, 4)):
        case 0:
            term["namespaces"] = [draw(st.sampled_from(SPACES))]
        case 1:
            term["namespaceSelector"] = {"matchLabels": {"team": draw(st.sampled_from(("x", "y")))}}
        case 2:
            term["namespaceSelector"] = {}
    return term


node_expressions = st.sampled_from(
    (
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": "disk", "operator": "NotIn", "values": ["ssd"]},
        {"key": "rack", "operator": "Exists"},
        {"key": "zone", "operator": "DoesNotExist"},
        {"key": "size", "operator": "Gt", "values": ["1"]},
        {"key": "size", "operator": "Lt", "values": ["3"]},
    )
)
weights = st.sampled_from((1, 50, 100))
names = st.sampled_from(("n0", "n1", "n2")).map(
    lambda name: {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
)


@st.composite
def affinities(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if draw(optional):
        terms = draw(st.lists(st.lists(node_expressions, min_size=1, max_size=2), min_size=1, max_size=2))
        selector: list[dict[str, Any]] = [{"matchExpressions": each} for each in terms]
        if draw(optional):
            selector.append(draw(names))
        found["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": selector}}
    if draw(optional):
        found["podAffinity"] = {_REQUIRED: draw(st.lists(pod_terms(), min_size=1, max_size=2))}
    if draw(optional):
        found["podAntiAffinity"] = {_REQUIRED: draw(st.lists(pod_terms(), min_size=1, max_size=2))}
    if draw(optional):  # wishes order the nodes, and never refuse one
        wish = {"weight": draw(weights), "preference": {"matchExpressions": [draw(node_expressions)]}}
        found["nodeAffinity"] = {**found.get("nodeAffinity", {}), _PREFERRED: [wish]}
    for part in ("podAffinity", "podAntiAffinity"):
        if draw(optional):
            wish = {"weight": draw(weights), "podAffinityTerm": draw(pod_terms())}
            found[part] = {**found.get(part, {}), _PREFERRED: [wish]}
    return found


@st.composite
def spreads(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {
        "maxSkew": draw(st.integers(1, 2)),
        "topologyKey": draw(st.sampled_from(TOPOLOGIES)),
        "whenUnsatisfiable": draw(st.sampled_from(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))),
        "labelSelector": draw(selectors),
    }
    if found["whenUnsatisfiable"] == "DoNotSchedule" and draw(optional):
        found["minDomains"] = draw(st.integers(1, 3))
    if draw(optional):
        found["nodeTaintsPolicy"] = draw(st.sampled_from(("Honor", "Ignore")))
    if draw(optional):
        found["nodeAffinityPolicy"] = draw(st.sampled_from(("Honor", "Ignore")))
    return found


@st.composite
def containers(draw: st.DrawFn, name: str = "c") -> dict[str, Any]:
    requests = {
        "cpu": draw(st.sampled_from(("500m", "1", "3"))),
        "memory": draw(st.sampled_from(("512Mi", "1Gi", "3Gi"))),
    }
    resources: dict[str, Any] = {"requests": requests}
    if draw(optional):
        requests["example.com/gpu"] = "1"
        resources["limits"] = {"example.com/gpu": "1"}
    return {"name": name, "image": "none", "resources": resources}


@st.composite
def init_containers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """One that comes before the others, or one that goes on beside them."""
    found = draw(containers(name))
    found["resources"].pop("limits", None)
    found["resources"]["requests"].pop("example.com/gpu", None)
    if draw(st.booleans()):
        found["restartPolicy"] = "Always"
    return found


@st.composite
def pods(draw: st.DrawFn, number: int) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [draw(containers())]}
    if draw(optional):
        spec["containers"].append(draw(containers("second")))
    if draw(optional):
        spec["initContainers"] = [draw(init_containers(f"init-{at}")) for at in range(draw(st.integers(1, 3)))]
    if draw(optional):
        spec |= {"runtimeClassName": RUNTIME_CLASS, "overhead": OVERHEAD}
    if draw(optional):  # at least as much as its containers ask for, by the rules of the API
        asked = request({"spec": {**spec, "overhead": {}}})
        more = {"cpu": f"{int(asked['cpu'] * 1000) + 250}m", "memory": f"{int(asked['memory'] / 1024**2) + 100}Mi"}
        spec["resources"] = {
            "requests": draw(st.sampled_from((more, {"cpu": more["cpu"]}, {"memory": more["memory"]})))
        }
    if draw(optional):
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": draw(st.sampled_from((80, 81)))}]
        if draw(st.booleans()):
            spec["containers"][0]["ports"][0]["hostIP"] = draw(st.sampled_from(("127.0.0.1", "10.0.0.1")))
    if draw(optional):
        spec["nodeSelector"] = {"disk": draw(st.sampled_from(("ssd", "hdd")))}
    if affinity := draw(affinities()):
        spec["affinity"] = affinity
    if draw(optional):
        spec["topologySpreadConstraints"] = draw(
            st.lists(spreads(), min_size=1, max_size=2, unique_by=lambda each: (each["topologyKey"], each["whenUnsatisfiable"]))
        )  # fmt: skip
    if draw(optional):
        tolerations = (
            {"key": "dedicated", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
            {"key": "dedicated", "operator": "Exists"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists"},
        )
        spec["tolerations"] = [draw(st.sampled_from(tolerations))]
    metadata = {
        "name": f"p{number}",
        "namespace": draw(st.sampled_from(SPACES)),
        "labels": {"app": draw(st.sampled_from(APPS))},
    }
    return {"metadata": metadata, "spec": spec}


@st.composite
def pod_lists(draw: st.DrawFn, most: int = 8) -> list[dict[str, Any]]:
    return [draw(pods(number)) for number in range(draw(st.integers(1, most)))]
