"""Pipeline documents as teams write them, each with every feature of one corner of the language. Used by several tests."""

from __future__ import annotations

BASE = """
name: base_pipeline
entry_points:
  preprocess:
    command: bash base_pipeline/shells/data.sh {{data_path}}
    docker_env: centos:centos7
    env:
      PF_JOB_FLAVOUR: flavour1
      USER_ABC: "123_{{PF_USER_NAME}}"
    parameters:
      data_path: ./base_pipeline/data/{{PF_RUN_ID}}
  train:
    command: bash base_pipeline/shells/train.sh {{epoch}} {{train_data}} {{model_path}}
    deps: preprocess
    parameters:
      epoch: 5
      model_path: ./output/{{PF_RUN_ID}}
      train_data: "{{preprocess.data_path}}"
  validate:
    command: bash base_pipeline/shells/validate.sh {{model_path}}
    deps: train
    parameters:
      model_path: "{{train.model_path}}"
docker_env: nginx:1.7.9
parallelism: 1
"""

ARTIFACTS = """
name: artifact_example
entry_points:
  preprocess:
    artifacts: {output: [train_data, validate_data]}
    command: bash -x data_artifact.sh {{data_path}} {{train_data}} {{validate_data}}
    parameters: {data_path: ./artifact_example/data/}
  train:
    artifacts:
      input: {train_data: "{{preprocess.train_data}}"}
      output: {train_model: ""}
    command: bash train.sh {{epoch}} {{train_data}} {{train_model}}
    deps: preprocess
    env: {PF_JOB_FLAVOUR: flavour1, PF_JOB_QUEUE_NAME: ppl-queue}
    parameters: {epoch: {type: int, default: 15}}
  validate:
    artifacts:
      input: {data: "{{preprocess.validate_data}}", model: "{{ train.train_model }}"}
    command: bash validate.sh {{model}}
    deps: preprocess,train
docker_env: nginx:1.7.9
cache: {enable: yes, max_expired_time: 400, fs_scope: [{name: ppl, path: "shells,data"}]}
fs_options:
  main_fs: {name: ppl, sub_path: a/b, mount_path: /home/paddleflow/mnt}
  extra_fs: [{name: other, read_only: true}]
failure_options: {strategy: continue}
disabled: validate
post_process:
  mail:
    command: python3 mail.py {{PF_RUN_ID}}
"""

REFERENCES = """
name: ref_components
docker_env: python:3.7
entry_points:
  randint:
    command: python3 randint.py {{num}} {{lower}} {{upper}}
    parameters: {lower: -10, upper: 10, num: 10}
    artifacts: {output: [random_num]}
    extra_fs:
    - {name: ppl, mount_path: /randint, sub_path: ref/randint, read_only: true}
  process:
    deps: randint
    reference: {component: process}
    artifacts:
      input: {data: "{{randint.random_num}}"}
  sum:
    deps: process
    command: python3 sum.py
    artifacts:
      input: {nums: "{{process.result}}"}
      output: [result]
parallelism: 2
fs_options:
  main_fs: {name: ppl}
components:
  process:
    artifacts:
      input: {data: ""}
      output: {result: "{{collector.collection}}"}
    parameters: {limit: 0}
    entry_points:
      split:
        reference: {component: split-by-threshold}
        parameters: {threshold: "{{PF_PARENT.limit}}"}
        artifacts:
          input: {nums: "{{PF_PARENT.data}}"}
      negative:
        command: python3 negative.py
        deps: split
        artifacts:
          input: {negative: "{{split.negative}}"}
          output: [result]
      collector:
        deps: negative, split
        command: python3 collect.py
        artifacts:
          input: {negative: "{{negative.result}}", positive: "{{split.positive}}"}
          output: [collection]
  split-by-threshold:
    command: python3 split.py {{threshold}}
    artifacts: {output: [negative, positive], input: {nums: ""}}
    parameters: {threshold: 0}
"""

LOOPS = """
name: loops_and_conditions
entry_points:
  numbers:
    command: python3 numbers.py
    artifacts: {output: [list]}
  over-list:
    command: echo {{PF_LOOP_ARGUMENT}}
    loop_argument: [1, two, 3.5, [4, 5]]
  over-text:
    command: echo {{PF_LOOP_ARGUMENT}}
    loop_argument: "[1, 2, 3]"
  over-nothing:
    command: echo {{PF_LOOP_ARGUMENT}}
    loop_argument: []
  over-parameter:
    command: echo {{PF_LOOP_ARGUMENT}}
    parameters: {names: [a, b]}
    loop_argument: "{{names}}"
  inside:
    deps: numbers
    loop_argument: "{{list}}"
    artifacts: {input: {list: "{{numbers.list}}"}}
    parameters: {base: 10}
    condition: "{{base}} > 5 && 'x' in (x, y)"
    entry_points:
      one:
        command: echo {{item}} {{base}}
        parameters: {item: "{{PF_PARENT.PF_LOOP_ARGUMENT}}", base: "{{PF_PARENT.base}}"}
fs_options: {main_fs: {name: ppl}}
"""

JOBS = """
name: jobs
docker_env: paddlepaddle/paddle:3.3.1
entry_points:
  train:
    parameters: {epochs: {type: int, default: 3}, out: {type: path, default: ./out}}
    job:
      framework: paddle
      scheduling_policy: {queue: default-queue, priority: high}
      members:
      - role: worker
        replicas: 2
        command: python train.py {{epochs}} {{out}}
        flavour: {cpu: 1, mem: 1Gi, scalarResources: {nvidia.com/gpu: 1}}
        env: {SEED: 7}
    retry: {times: 2, delay: 5, factor: 3, most: 1m, exit_codes: [1, 137]}
    timeout: 1h30m
  single:
    deps: train
    command: python evaluate.py
    job: {flavour: flavour1, port: 8080, labels: {team: vision}}
    retry: 3
    timeout: 90
  ray:
    env:
      PF_JOB_TYPE: distributed
      PF_JOB_FRAMEWORK: ray
      RAY_JOB_ENTRY_POINT: python sample_pi.py
      RAY_JOB_WORKER_REPLICAS: 3
"""

ALL = {"base": BASE, "artifacts": ARTIFACTS, "references": REFERENCES, "loops": LOOPS, "jobs": JOBS}
