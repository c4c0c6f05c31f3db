"""Each rule of the language, broken once: the fault stands at the right place, says what was found, and hints at the cure.

Every document here has exactly the fault that it is meant to have, so the rules do not raise noise for each other.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline.document import read, read_json
from paddleflow.spec.pipeline.faults import PipelineFault
from paddleflow.spec.pipeline.run_request import bind


class Case(NamedTuple):
    document: str
    place: str  #: line:column path
    message: str
    hint: str = ""


def steps(body: str, more: str = "") -> str:
    """A document with these entry points, indented by two; the first stands in line 3."""
    return f"name: p\nentry_points:\n{body}\n{more}"


PREP = "  prep: {command: x, parameters: {n: 1}, artifacts: {output: [data]}}\n"

TOP = {
    "unknown key": Case("name: p\nentrypoints: {a: {command: x}}\nentry_points: {a: {command: x}}", "2:1", "workflow has no attribute [entrypoints]", "did you mean entry_points?"),
    "no distributed_job key": Case(steps("  a: {command: x}", "distributed_job: {}"), "4:1", "workflow has no attribute [distributed_job]"),
    "no name": Case("entry_points: {a: {command: x}}", "1:1 name", "the workflow has no [name]", "name: my_pipeline"),
    "bad name": Case("name: 1p\nentry_points: {a: {command: x}}", "1:7 name", "format of pipeline name[1p] is invalid"),
    "long name": Case(f"name: {'p' * 129}\nentry_points: {{a: {{command: x}}}}", "1:7 name", "1 to 128"),
    "no entry points": Case("name: p", "1:1 entry_points", "workflow has no component in [entry_points]"),
    "empty entry points": Case("name: p\nentry_points: {}", "2:15 entry_points", "workflow has no component"),
    "a list as entry points": Case("name: p\nentry_points: [a]", "2:15 entry_points", "[entry_points] should be a map, found a list"),
    "a step that is text": Case(steps("  a: echo"), "3:6 entry_points.a", "[a] should be a map, found [echo]"),
    "image as file": Case("name: p\ndocker_env: a.tar\nentry_points: {a: {command: x}}", "2:13 docker_env", "not of a .tar file, found [a.tar]"),
    "parallelism as text": Case(steps("  a: {command: x}", "parallelism: many"), "4:14 parallelism", "[parallelism] should be a whole number, found [many]"),
    "negative parallelism": Case(steps("  a: {command: x}", "parallelism: -1"), "4:14 parallelism", "from 1 to 20, found [-1]"),
    "strategy": Case(steps("  a: {command: x}", "failure_options: {strategy: fail-fast}"), "4:29 failure_options.strategy", "failure strategy should be [fail_fast] or [continue], set to [fail-fast]", "did you mean fail_fast?"),
    "failure key": Case(steps("  a: {command: x}", "failure_options: {stratgy: continue}"), "4:19 failure_options", "[failure_options] has no attribute [stratgy]", "did you mean strategy?"),
    "unknown disabled": Case(steps("  abc: {command: x}", "disabled: abd"), "4:11 disabled", "disabled component[abd] not existed", "did you mean abc?"),
    "disabled twice": Case(steps("  a: {command: x}", "disabled: 'a, a'"), "4:11 disabled", "disabled component[a] is set repeatedly"),
    "unknown disabled in a dag": Case(steps("  d: {entry_points: {e: {command: x}}}", "disabled: d.f"), "4:11 disabled", "disabled component[d.f] not existed", "did you mean"),
    "disabled but needed": Case(steps(PREP + "  b: {command: x, deps: prep, parameters: {m: '{{prep.n}}'}}", "disabled: prep"), "5:11 disabled", "disabled component[prep] is referred by component[b]"),
    "disabled but an output": Case(
        steps("  d: {entry_points: {c: {command: x, artifacts: {output: [o]}}}, artifacts: {output: {r: '{{c.o}}'}}}", "disabled: d.c\nfs_options: {main_fs: {name: f}}"),
        "4:11 disabled", "disabled component[d.c] is referred by the outputs of dag[d]"),
}  # fmt: skip

COMPONENTS = {
    "unknown step key": Case(steps("  a: {comand: x}"), "3:7 entry_points.a", "step has no attribute [comand]", "did you mean command?"),
    "step key on a dag": Case(steps("  a: {entry_points: {b: {command: x}}, command: x}"), "3:40 entry_points.a", "dag has no attribute [command]"),
    "step name": Case(steps("  a_b: {command: x}"), "3:3 entry_points.a_b", "stepName[a_b] is invalid, it must be 1 to 30 letters"),
    "long step name": Case(steps(f"  {'a' * 31}: {{command: x}}"), f"3:3 entry_points.{'a' * 31}", "is invalid"),
    "nested name": Case(steps("  d: {entry_points: {1b: {command: x}}}"), "3:22 entry_points.d.entry_points.1b", "stepName[1b] is invalid"),
    "empty dag": Case(steps("  d: {entry_points: {}}"), "3:3 entry_points.d", "dag[d] has no component in [entry_points]"),
    "type of a step": Case(steps("  a: {command: x, type: dag}"), "3:25 entry_points.a.type", "set [type] as [dag] in step", "a dag has [entry_points]"),
    "type of a dag": Case(steps("  d: {type: step, entry_points: {a: {command: x}}}"), "3:13 entry_points.d.type", "set [type] as [step] in dag"),
    "unknown dep": Case(steps(PREP + "  b: {command: x, deps: 'prep,pret'}"), "4:25 entry_points.b.deps", "component [b] has a wrong dep [pret]", "did you mean prep?"),
    "depends on itself": Case(steps("  b: {command: x, deps: b}"), "3:25 entry_points.b.deps", "component [b] depends on itself"),
    "circle": Case(steps("  a: {command: x, deps: b}\n  b: {command: x, deps: c}\n  c: {command: x, deps: a}"), "3:25 entry_points.a.deps", "workflow is not acyclic: a→b→c→a"),
    "circle in a dag": Case(steps("  d: {entry_points: {a: {command: x, deps: b}, b: {command: x, deps: a}}}"), "3:44 entry_points.d.entry_points.a.deps", "a→b→a"),
    "dep across a border": Case(steps(PREP + "  d: {entry_points: {a: {command: x, deps: prep}}}"), "4:44 entry_points.d.entry_points.a.deps", "has a wrong dep [prep]"),
    "command as list": Case(steps("  a: {command: [x]}"), "3:16 entry_points.a.command", "[command] should be text, found a list"),
    "boolean in env": Case(steps("  a: {command: x, env: {A: true}}"), "3:28 entry_points.a.env.A", "[A] should be text, found [true]", 'write "true" in quotes'),
    "list in env": Case(steps("  a: {command: x, env: {A: [1]}}"), "3:28 entry_points.a.env.A", "found a list"),
    "name in env": Case(steps("  a: {command: x, env: {'A B': x}}"), "3:25 entry_points.a.env.A B", "environment variable name[A B] is invalid"),
    "image as file in a step": Case(steps("  a: {command: x, docker_env: i.tar}"), "3:31 entry_points.a.docker_env", "not of a .tar file"),
}  # fmt: skip

PARAMETERS = {
    "boolean": Case(steps("  a: {command: x, parameters: {p: true}}"), "3:35 entry_points.a.parameters.p", "type[bool] is not supported for param[p]", 'write it as text: "true"'),
    "nothing": Case(steps("  a: {command: x, parameters: {p: }}"), "3:35 entry_points.a.parameters.p", "param[p] has no value"),
    "name": Case(steps("  a: {command: x, parameters: {a-b: 1}}"), "3:32 entry_points.a.parameters.a-b", "variable name[a-b] is invalid"),
    "unknown type": Case(steps("  a: {command: x, parameters: {p: {type: integer, default: 1}}}"), "3:35 entry_points.a.parameters.p", "type[integer] is not supported for dict param[name: p]", "did you mean int?"),
    "no default": Case(steps("  a: {command: x, parameters: {p: {type: int}}}"), "3:35 entry_points.a.parameters.p", "dict param[name: p] has no [default]"),
    "unknown key": Case(steps("  a: {command: x, parameters: {p: {typ: int, default: 1}}}"), "3:36 entry_points.a.parameters.p", "has no attribute [typ]", "did you mean type?"),
    "int": Case(steps("  a: {command: x, parameters: {p: {type: int, default: 1.5}}}"), "3:35 entry_points.a.parameters.p", "expect type[int], found a number [1.5]"),
    "float": Case(steps("  a: {command: x, parameters: {p: {type: float, default: x}}}"), "3:35 entry_points.a.parameters.p", "expect type[float], found text [x]"),
    "string": Case(steps("  a: {command: x, parameters: {p: {type: string, default: 1}}}"), "3:35 entry_points.a.parameters.p", "expect type[string], found an integer [1]"),
    "list": Case(steps("  a: {command: x, parameters: {p: {type: list, default: 1}}}"), "3:35 entry_points.a.parameters.p", "expect type[list]"),
    "path": Case(steps("  a: {command: x, parameters: {p: {type: path, default: 'a b'}}}"), "3:35 entry_points.a.parameters.p", "invalid path value[a b] in parameter[p]"),
    "list nested too deep": Case(steps(f"  a: {{command: x, parameters: {{p: {'[' * 20}{']' * 20}}}}}"), "3:35 entry_points.a.parameters.p", "nested more than 16 deep"),
    "map in a list": Case(steps("  a: {command: x, parameters: {p: [{a: 1}]}}"), "3:35 entry_points.a.parameters.p", "holds a map"),
    "template in a list": Case(steps("  a: {command: x, parameters: {p: ['{{PF_RUN_ID}}']}}"), "3:35 entry_points.a.parameters.p", "templates cannot be in lists"),
    "same name in other case": Case(steps("  a: {command: x, parameters: {pa: 1, PA: 2}}"), "3:39 entry_points.a.parameters.PA", "parameter name[PA] has already existed in params/artifacts of component[a]"),
    "same name as an output": Case(steps("  a: {command: x, parameters: {o: 1}, artifacts: {output: {O: ''}}}"), "3:60 entry_points.a.artifacts.output.O", "outputAtf name[O] has already existed"),
    "own parameter in a parameter": Case(steps("  a: {command: x, parameters: {p: 1, q: '{{p}}'}}"), "3:41 entry_points.a.parameters.q", "unsupported SysParamName[p] for param[q]"),
    "system parameter": Case(steps("  a: {command: x, parameters: {q: '{{PF_RUNID}}'}}"), "3:35 entry_points.a.parameters.q", "SysParamName[PF_RUNID]", "did you mean PF_RUN_ID?"),
    "upstream not in deps": Case(steps(PREP + "  a: {command: x, parameters: {q: '{{prep.n}}'}}"), "4:35 entry_points.a.parameters.q", "invalid reference {{prep.n}} in component[a]: component[prep] not in deps", "deps: prep"),
    "upstream unknown": Case(steps(PREP + "  a: {command: x, deps: prep, parameters: {q: '{{pre.n}}'}}"), "4:47 entry_points.a.parameters.q", "component[pre] not exist", "did you mean prep?"),
    "no such parameter": Case(steps(PREP + "  a: {command: x, deps: prep, parameters: {q: '{{prep.m}}'}}"), "4:47 entry_points.a.parameters.q", "component[prep] has no parameter [m]"),
    "no parent": Case(steps("  a: {command: x, parameters: {q: '{{PF_PARENT.x}}'}}"), "3:35 entry_points.a.parameters.q", "PF_PARENT should be used by a child component"),
    "parent without it": Case(steps("  d: {parameters: {x: 1}, entry_points: {a: {command: x, parameters: {q: '{{PF_PARENT.y}}'}}}}"), "3:74 entry_points.d.entry_points.a.parameters.q", "the parent has no parameter [y]"),
}  # fmt: skip

TEMPLATES = {
    "command": Case(steps("  a: {command: 'x {{nam}}', parameters: {name: 1}}"), "3:19 entry_points.a.command", "unsupported RefParamName[nam] for field[command] of component[a]", "did you mean name?"),
    "upstream in a command": Case(steps(PREP + "  a: {command: '{{prep.n}}', deps: prep}"), "4:17 entry_points.a.command", "RefParamName[prep.n]", 'parameters: {n: "{{prep.n}}"}'),
    "artifact in env": Case(steps("  a: {command: x, env: {A: '{{o}}'}, artifacts: {output: [o]}}", "fs_options: {main_fs: {name: f}}"), "3:29 entry_points.a.env.A", "unsupported RefParamName[o] for field[env]"),
    "output in a condition": Case(steps("  a: {command: x, condition: '{{o}} == 1', artifacts: {output: [o]}}", "fs_options: {main_fs: {name: f}}"), "3:31 entry_points.a.condition", "RefParamName[o] for field[condition]"),
    "in a block of several lines": Case(steps("  a:\n    command: |\n      one\n      two {{ nam }}\n    parameters: {name: 1}"), "6:11 entry_points.a.command", "unsupported RefParamName[nam]", "did you mean name?"),
    "in a member of a job": Case(steps("  a:\n    job:\n      framework: mpi\n      members:\n      - {role: master, image: a}\n      - {role: worker, image: '{{b}}'}"), "8:32 entry_points.a.job.members.image", "RefParamName[b] for field[job]"),
    "job": Case(steps("  a: {job: {command: '{{x}}'}}"), "3:23 entry_points.a.job.command", "RefParamName[x] for field[job]"),
    "condition": Case(steps("  a: {command: x, condition: 1 >}"), "3:30 entry_points.a.condition", "condition[1 >] is invalid, error: expected a value at character 4, the condition ends"),
    "condition as boolean": Case(steps("  a: {command: x, condition: true}"), "3:30 entry_points.a.condition", "[condition] should be text", 'write "true" in quotes'),
    "input as text": Case(steps("  a: {command: x, artifacts: {input: {i: ./file}}}"), "3:42 entry_points.a.artifacts.input.i", "input artifact [i] of component[a] must be exactly one reference, found [./file]"),
    "input of several": Case(steps(PREP + "  a: {command: x, deps: prep, artifacts: {input: {i: '{{prep.data}}/x'}}}"), "4:54 entry_points.a.artifacts.input.i", "must be exactly one reference"),
    "input that is not there": Case(steps(PREP + "  a: {command: x, deps: prep, artifacts: {input: {i: '{{prep.dat}}'}}}"), "4:54 entry_points.a.artifacts.input.i", "component[prep] has no output artifact [dat]", "did you mean data?"),
    "input of a parent": Case(steps("  d: {entry_points: {a: {command: x, artifacts: {input: {i: '{{PF_PARENT.i}}'}}}}}"), "3:61 entry_points.d.entry_points.a.artifacts.input.i", "the parent has no input artifact [i]"),
    "input of what may not run": Case(
        steps("  c: {command: x, condition: 1 > 2, artifacts: {output: [o]}}\n  a: {command: x, deps: c, artifacts: {input: {i: '{{c.o}}'}}}", "fs_options: {main_fs: {name: f}}"),
        "4:51 entry_points.a.artifacts.input.i", "component[c] has a condition"),
    "output of a dag": Case(steps("  d: {artifacts: {output: {o: x}}, entry_points: {a: {command: x}}}"), "3:31 entry_points.d.artifacts.output.o", "output artifact [o] of dag[d] must be exactly one reference, found [x]"),
    "output of no child": Case(steps("  d: {artifacts: {output: {o: '{{b.o}}'}}, entry_points: {a: {command: x}}}"), "3:31 entry_points.d.artifacts.output.o", "component[b] not exist in it"),
    "outputs of a dag as a list": Case(steps("  d: {artifacts: {output: [o]}, entry_points: {a: {command: x}}}"), "3:27 entry_points.d.artifacts.output", "should be a map of names"),
    "artifact key": Case(steps("  a: {command: x, artifacts: {outputs: [o]}}"), "3:31 entry_points.a.artifacts", "[artifacts] of step has no attribute [outputs]", "did you mean output?"),
    "input name": Case(steps(PREP + "  a: {command: x, deps: prep, artifacts: {input: {i-1: '{{prep.data}}'}}}"), "4:51 entry_points.a.artifacts.input.i-1", "variable name[i-1] is invalid"),
    "output name": Case(steps("  a: {command: x, artifacts: {output: [1o]}}"), "3:40 entry_points.a.artifacts.output", "variable name[1o] is invalid"),
    "output name in a map": Case(steps("  a: {command: x, artifacts: {output: {o.o: ''}}}"), "3:40 entry_points.a.artifacts.output.o.o", "variable name[o.o] is invalid"),
    "NUL in a command": Case(steps('  a: {command: "x\\0"}'), "3:16 entry_points.a.command", "a NUL character cannot be part of a command"),
    "NUL in env": Case(steps('  a: {command: x, env: {A: "\\0"}}'), "3:28 entry_points.a.env.A", "the value of [A] holds a NUL character"),
    "output twice": Case(steps("  a: {command: x, artifacts: {output: [o, o]}}", "fs_options: {main_fs: {name: f}}"), "3:43 entry_points.a.artifacts.output", "the output artifact [o] is given twice"),
}  # fmt: skip

LOOPS = {
    "text that is no list": Case(steps("  a: {command: x, loop_argument: abc}"), "3:34 entry_points.a.loop_argument", "loop_argument [abc] unmarshal to list failed"),
    "JSON that is no list": Case(steps("  a: {command: x, loop_argument: '{\"a\": 1}'}"), "3:34 entry_points.a.loop_argument", "should be a list, found a map"),
    "number": Case(steps("  a: {command: x, loop_argument: 3}"), "3:34 entry_points.a.loop_argument", "should be a list, found an integer [3]"),
    "map inside": Case(steps("  a: {command: x, loop_argument: [1, {a: b}]}"), "3:34 entry_points.a.loop_argument", "in loop_argument is a map"),
    "template inside": Case(steps("  a: {command: x, loop_argument: ['{{p}}'], parameters: {p: 1}}"), "3:34 entry_points.a.loop_argument", "is a template"),
    "template and more": Case(steps("  a: {command: x, loop_argument: '{{p}},1', parameters: {p: 1}}"), "3:34 entry_points.a.loop_argument", "expected a single template and nothing else"),
    "unknown template": Case(steps("  a: {command: x, loop_argument: '{{q}}', parameters: {p: 1}}"), "3:34 entry_points.a.loop_argument", "loop_argument {{q}} is not parameter or input artifact of component[a]"),
    "own output": Case(steps("  a: {command: x, loop_argument: '{{o}}', artifacts: {output: [o]}}"), "3:34 entry_points.a.loop_argument", "{{o}} is not parameter or input"),
    "list nested too deep": Case(steps(f"  a: {{command: x, loop_argument: '{'[' * 50}{']' * 50}'}}"), "3:34 entry_points.a.loop_argument", "nested more than 16 deep"),
    "100,000 elements": Case(steps(f"  a: {{command: x, loop_argument: {list(range(100_000))}}}"), "3:34 entry_points.a.loop_argument", "loop_argument has 100,000 elements, at most 10,000 are taken"),
    "100,000 elements as text": Case(steps(f"  a: {{command: x, loop_argument: '{list(range(100_000))}'}}"), "3:34 entry_points.a.loop_argument", "loop_argument has 100,000 elements, at most 10,000 are taken"),
}  # fmt: skip

COMP = "components:\n  c: {command: '{{t}}', parameters: {t: {type: int, default: 0}}, artifacts: {input: {i: ''}}}"
REFERENCES = {
    "unknown": Case(steps("  a: {reference: {component: d}}", "components: {dd: {command: x}}"), "3:30 entry_points.a.reference.component", "no component named d", "did you mean dd?"),
    "none": Case(steps("  a: {reference: {}}"), "3:18 entry_points.a.reference", "[reference] names no [component]"),
    "key": Case(steps("  a: {reference: {component: d, x: 1}}", "components: {d: {command: x}}"), "3:33 entry_points.a.reference", "[reference] of step has no attribute [x]"),
    "more than it may have": Case(steps("  a: {reference: {component: d}, env: {A: 1}}", "components: {d: {command: x}}"), "3:34 entry_points.a.env", "reference step can only have deps, parameters, input artifacts, reference; it has [env]"),
    "outputs": Case(steps("  a: {reference: {component: d}, artifacts: {output: [o]}}", "components: {d: {command: x}}"), "3:54 entry_points.a.artifacts.output", "it has output artifacts"),
    "parameter": Case(steps("  a: {reference: {component: d}, parameters: {thre: 1}}", "components: {d: {command: x, parameters: {three: 0}}}"), "3:47 entry_points.a.parameters.thre", "parameters in step with reference must be in referred component[d]: [thre]", "did you mean three?"),
    "type of a parameter": Case(steps("  b: {command: x, artifacts: {output: [o]}}\n  a: {deps: b, reference: {component: c}, parameters: {t: x}, artifacts: {input: {i: '{{b.o}}'}}}", COMP + "\nfs_options: {main_fs: {name: f}}"), "4:59 entry_points.a.parameters.t", "expect type[int], found text [x]"),
    "missing input": Case(steps("  a: {reference: {component: c}}", COMP + "\nfs_options: {main_fs: {name: f}}"), "3:3 entry_points.a.artifacts.input", "should all be given by the step with reference: [i] missing"),
    "input it has not": Case(steps(PREP + "  a: {deps: prep, reference: {component: d}, artifacts: {input: {i: '{{prep.data}}'}}}", "components: {d: {command: x}}"), "4:66 entry_points.a.artifacts.input.i", "must be in referred component[d]: [i]", "it has no input artifacts"),
    "to itself": Case(steps("  a: {command: x}", "components: {c: {reference: {component: c}}}"), "4:41 components.c.reference.component", "reference should not be recursive: c→c"),
    "in a circle": Case(steps("  a: {command: x}", "components:\n  c: {entry_points: {e: {reference: {component: d}}}}\n  d: {reference: {component: c}}"), "6:30 components.d.reference.component", "reference should not be recursive: c→d→c"),
    "deps of a component": Case(steps("  a: {command: x}", "components: {c: {command: x, deps: a}}"), "4:36 components.c.deps", "components can not have deps: [c] has"),
    "inside a component": Case(steps("  a: {command: x}", "components: {c: {command: '{{y}}'}}"), "4:28 components.c.command", "RefParamName[y]"),
    "deep inside a component, once": Case(steps("  a: {reference: {component: c}}\n  b: {reference: {component: c}}", "components: {c: {entry_points: {e: {command: '{{y}}'}}}}"), "5:47 components.c.entry_points.e.command", "RefParamName[y]"),
}  # fmt: skip

POST = {
    "two": Case(steps("  a: {command: x}", "post_process: {b: {command: x}, c: {command: x}}"), "4:33 post_process", "post_process can only have 1 step at most, found 2"),
    "dag": Case(steps("  a: {command: x}", "post_process: {b: {entry_points: {c: {command: x}}}}"), "4:16 post_process.b", "can only have step, found a dag"),
    "name": Case(steps("  a: {command: x}", "post_process: {b_c: {command: x}}"), "4:16 post_process.b_c", "stepName[b_c] is invalid"),
    "name taken": Case(steps("  a: {command: x}", "post_process: {a: {command: x}}"), "4:16 post_process.a", "a step in post_process has name [a], which is same to name of a step in entry_points"),
    "deps": Case(steps("  a: {command: x}", "post_process: {b: {command: x, deps: a}}"), "4:32 post_process.b.deps", "step [b] in post_process has deps"),
    "condition": Case(steps("  a: {command: x}", "post_process: {b: {command: x, condition: 1 > 2}}"), "4:32 post_process.b.condition", "step [b] in post_process has condition"),
    "loop": Case(steps("  a: {command: x}", "post_process: {b: {command: x, loop_argument: [1]}}"), "4:32 post_process.b.loop_argument", "step [b] in post_process has loop_argument"),
    "cache": Case(steps("  a: {command: x}", "post_process: {b: {command: x, cache: {enable: true}}}"), "4:39 post_process.b.cache", "step [b] in post_process should not use cache"),
    "inputs": Case(steps(PREP, "post_process: {b: {command: x, artifacts: {input: {i: '{{prep.data}}'}}}}\nfs_options: {main_fs: {name: f}}"), "5:32 post_process.b.artifacts", "step [b] in post_process has input artifacts"),
    "others' parameters": Case(steps(PREP, "post_process: {b: {command: x, parameters: {p: '{{prep.n}}'}}}"), "5:48 post_process.b.parameters.p", "step in post_process can not use parameters of steps in entry_points"),
    "loop by reference": Case(steps("  a: {command: x}", "post_process: {b: {reference: {component: c}}}\ncomponents: {c: {command: x, loop_argument: [1]}}"), "5:30 post_process.b.loop_argument", "step [b] in post_process has loop_argument"),
}  # fmt: skip

OPTIONS = {
    "cache key": Case(steps("  a: {command: x, cache: {enabled: true}}"), "3:27 entry_points.a.cache", "[cache] has no attribute [enabled]", "did you mean enable?"),
    "cache enable": Case(steps("  a: {command: x, cache: {enable: 1}}"), "3:35 entry_points.a.cache.enable", "[enable] should be true or false, found [1]"),
    "cache time": Case(steps("  a: {command: x}", "cache: {max_expired_time: soon}"), "4:27 cache.max_expired_time", "should be a whole number, found [soon]"),
    "cache time below": Case(steps("  a: {command: x}", "cache: {max_expired_time: -2}"), "4:27 cache.max_expired_time", "seconds, or -1 for ever, found [-2]"),
    "scope without name": Case(steps("  a: {command: x}", "cache: {fs_scope: [{path: a}]}"), "4:20 cache.fs_scope", "[name] in fs_scope must be set"),
    "scope that leaves": Case(steps("  a: {command: x}", "cache: {fs_scope: [{name: f, path: 'a,../b'}]}\nfs_options: {main_fs: {name: f}}"), "4:36 cache.fs_scope.path", "the path [../b] leaves the storage"),
    "main_fs without name": Case(steps("  a: {command: x}", "fs_options: {main_fs: {sub_path: a}}"), "4:23 fs_options.main_fs", "[name] in [main_fs] must not be empty"),
    "main_fs read only": Case(steps("  a: {command: x}", "fs_options: {main_fs: {name: f, read_only: true}}"), "4:44 fs_options.main_fs.read_only", "can only be false"),
    "sub_path from the root": Case(steps("  a: {command: x}", "fs_options: {main_fs: {name: f, sub_path: /a}}"), "4:43 fs_options.main_fs.sub_path", "[sub_path] in [main_fs] should not start with '/'"),
    "sub_path that leaves": Case(steps("  a: {command: x}", "fs_options: {extra_fs: [{name: f, sub_path: a/../../b}]}"), "4:45 fs_options.extra_fs.sub_path", "the path [a/../../b] leaves the storage"),
    "relative mount_path": Case(steps("  a: {command: x, extra_fs: [{name: f, mount_path: mnt}]}"), "3:52 entry_points.a.extra_fs.mount_path", "[mount_path] should be an absolute path below /, found [mnt]"),
    "extra_fs as map": Case(steps("  a: {command: x, extra_fs: {name: f}}"), "3:29 entry_points.a.extra_fs", "[extra_fs] should be a list, found a map"),
    "fs name": Case(steps("  a: {command: x, extra_fs: [{name: f/g}]}"), "3:37 entry_points.a.extra_fs.name", "fs name[f/g] is invalid"),
    "retry key": Case(steps("  a: {command: x, retry: {times: 1, backoff: 2}}"), "3:37 entry_points.a.retry", "[retry] has no attribute [backoff]"),
    "retry without times": Case(steps("  a: {command: x, retry: {delay: 1}}"), "3:26 entry_points.a.retry", "[retry] says nothing about [times]"),
    "retry too often": Case(steps("  a: {command: x, retry: 1000}"), "3:26 entry_points.a.retry", "a whole number from 0 to 100, found [1000]"),
    "retry factor": Case(steps("  a: {command: x, retry: {times: 1, factor: 0.5}}"), "3:45 entry_points.a.retry.factor", "a number from 1 to 100, found [0.5]"),
    "retry factor as text": Case(steps("  a: {command: x, retry: {times: 1, factor: x}}"), "3:45 entry_points.a.retry.factor", "[factor] should be a number, found [x]"),
    "retry codes": Case(steps("  a: {command: x, retry: {times: 1, exit_codes: [0]}}"), "3:50 entry_points.a.retry.exit_codes", "numbers from 1 to 255, found [0]"),
    "timeout": Case(steps("  a: {command: x, timeout: soon}"), "3:28 entry_points.a.timeout", "or a text such as 30m or 1h30m, found [soon]"),
    "negative timeout": Case(steps("  a: {command: x, timeout: -1}"), "3:28 entry_points.a.timeout", "found [-1]"),
    "job key": Case(steps("  a: {job: {framewrk: paddle}}"), "3:13 entry_points.a.job", "[job] has no attribute [framewrk]", "did you mean framework?"),
    "job without members": Case(steps("  a: {job: {framework: paddle}}"), "3:7 entry_points.a.job", "[job] of framework[paddle] has no [members]"),
    "members without framework": Case(steps("  a: {job: {members: [{role: worker}]}}"), "3:7 entry_points.a.job", "it must say its [framework]"),
    "member without role": Case(steps("  a: {job: {framework: mpi, members: [{replicas: 1}]}}"), "3:39 entry_points.a.job.members[0]", "[role] of a member must be set"),
    "member's replicas": Case(steps("  a: {job: {framework: mpi, members: [{role: worker, replicas: 0}]}}"), "3:64 entry_points.a.job.members[0].replicas", "from 1 to 10,000, found [0]"),
    "member's key": Case(steps("  a: {job: {framework: mpi, members: [{role: worker, replica: 1}]}}"), "3:54 entry_points.a.job.members[0]", "[members] has no attribute [replica]", "did you mean replicas?"),
    "job's priority": Case(steps("  a: {command: x, job: {schedulingPolicy: {priority: hgh}}}"), "3:54 entry_points.a.job.schedulingPolicy.priority", "priority[HGH] is not supported", "did you mean HIGH?"),
    "job's port": Case(steps("  a: {command: x, job: {port: 70000}}"), "3:31 entry_points.a.job.port", "[0, 65534], found [70000]"),
    "job as text": Case(steps("  a: {job: paddle}"), "3:12 entry_points.a.job", "[job] should be a map, found [paddle]"),
    "job's template": Case(steps("  a: {command: x, job: {extensionTemplate: [a]}}"), "3:44 entry_points.a.job.extensionTemplate", "should be a map, found a list"),
    "job's storage": Case(steps("  a: {command: x, job: {fs: {subPath: a}}}"), "3:29 entry_points.a.job.fs", "[name] in [fs] must not be empty"),
    "job's key twice": Case(steps("  a: {command: x, job: {extraFS: [], extra_fs: []}}"), "3:38 entry_points.a.job", "[job] has the attribute [extraFS] twice"),
    "two commands": Case(steps("  a: {command: x, job: {command: y}}"), "3:24 entry_points.a.job", "[command] stands at the step and in its [job]"),
    "two storages at one place": Case(steps("  a: {command: x, extra_fs: [{name: g, mount_path: /mnt/a/}]}", "fs_options: {main_fs: {name: f, mount_path: /mnt/a}}"), "3:3 entry_points.a.extra_fs", "fs[f] and fs[g] have the same mount_path[/mnt/a]"),
    "artifact without storage": Case(steps("  a: {command: x, artifacts: {output: [o]}}"), "3:3 entry_points.a", "cannot define artifact in component[a] with no Fs mounted"),
    "scope without storage": Case(steps("  a: {command: x, cache: {enable: true, fs_scope: [{name: g}]}, extra_fs: [{name: h}]}"), "3:3 entry_points.a.cache.fs_scope", "fs_name [g] in fs_scope must also be in [extra_fs] or [main_fs]"),
}  # fmt: skip

TABLES = {
    "top": TOP,
    "component": COMPONENTS,
    "parameter": PARAMETERS,
    "template": TEMPLATES,
    "loop": LOOPS,
    "reference": REFERENCES,
    "post_process": POST,
    "option": OPTIONS,
}
CASES = {f"{table}: {name}": case for table, cases in TABLES.items() for name, case in cases.items()}


def refused(document: str) -> tuple[Invalid, list[PipelineFault]]:
    with pytest.raises(Invalid) as caught:
        bind(read(document))
    faults = [fault for fault in caught.value.details if isinstance(fault, PipelineFault)]
    assert len(faults) == len(caught.value.details)
    return caught.value, faults


@pytest.mark.parametrize("name", CASES)
def test_a_broken_rule(name: str) -> None:
    case = CASES[name]
    document = case.document
    if "with no Fs mounted" not in case.message and "fs_options" not in document and "artifacts" in document:
        document += "\nfs_options: {main_fs: {name: f}}"
    error, faults = refused(document)
    assert error.code == "InvalidPipeline"
    assert [fault.where for fault in faults] == [case.place]
    assert case.message in faults[0].message
    assert case.hint in faults[0].hint


def test_all_faults_at_once_in_the_order_of_the_document() -> None:
    document = """
name: 1p
entry_points:
  a: {comand: x, deps: b, timeout: soon}
  b: {command: "{{x}}", deps: a}
parallelism: many
"""
    _, faults = refused(document)
    assert [(fault.line, fault.column) for fault in faults] == [(2, 7), (4, 7), (4, 24), (4, 36), (5, 17), (6, 14)]


def test_a_fault_names_its_file() -> None:
    with pytest.raises(Invalid) as caught:
        read("name: p\nentry_points: {a: {command: x, deps: b}}", "run.yaml")
    assert caught.value.details[0].where == "run.yaml:2:38 entry_points.a.deps"
    assert str(caught.value).startswith("run.yaml:2:38 entry_points.a.deps: component [a]")


def test_very_many_faults_are_cut() -> None:
    body = "\n".join(f"  s{number}: {{comand: x}}" for number in range(1000))
    with pytest.raises(Invalid) as caught:
        read(steps(body))
    assert len(caught.value.details) == 101
    assert caught.value.details[-1].message == "… and 900 more"
    assert len(caught.value.message) < 50_000


@pytest.mark.parametrize(
    ("more", "where", "message"),
    [
        ({"desc": "x"}, "", "workflow has no attribute [desc]"),
        ({"flavour": 1.5e300, "queue": ["q"]}, "queue", "[queue] should be text, found a list"),
        ({"env": {"A": {}}}, "env.A", "[A] should be text, found a map"),
        ({"dockerEnv": "a", "docker_env": "b"}, "", "the attribute [docker_env] twice, also as [docker_env]"),
        ({"username": 5.5, "description": {}}, "description", "[description] should be text, found a map"),
    ],
)
def test_the_globals_of_runjson(more: dict[str, object], where: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_json({"name": "p", "entryPoints": {"a": {"command": "x"}}, **more})
    assert [fault.where for fault in caught.value.details] == [where]
    assert message in caught.value.details[0].message


def test_the_globals_are_not_of_the_yaml() -> None:
    _, faults = refused(steps("  a: {command: x}", "queue: q\nflavour: f"))
    assert [fault.message for fault in faults] == [
        "workflow has no attribute [queue]",
        "workflow has no attribute [flavour]",
    ]
