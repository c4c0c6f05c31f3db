"""Artifacts lie on the main storage; steps may see others, each at a path of its own. Make them first:
paddleflow fs create work local:///tmp/work;  paddleflow fs create data local:///tmp/data
"""

from paddleflow.pipeline import Artifact, ContainerStep, ExtraFS, FSOptions, MainFS, Pipeline


@Pipeline(
    name="multiple_file_systems",
    docker_env="python:3.12",
    fs_options=FSOptions(
        MainFS("work", sub_path="team", mount_path="/tmp/mnt/work"),
        ExtraFS("data", mount_path="/tmp/mnt/data"),  # every step sees it
    ),
)
def multiple_file_systems():
    write = ContainerStep(
        name="write",
        command='mkdir -p /tmp/mnt/data/in\necho "written to the extra storage" > /tmp/mnt/data/in/note.txt',
    )
    ContainerStep(
        name="read",
        outputs={"copy": Artifact()},
        extra_fs=ExtraFS("data", sub_path="in", mount_path="/tmp/mnt/notes", read_only=True),
        command="cat /tmp/mnt/notes/note.txt | tee {{copy}}",
    ).after(write)


if __name__ == "__main__":
    run = multiple_file_systems().submit()
    for line in run.logs(follow=True):
        print(line, end="")
    print(run.wait().status)
