"""A step for each element of a list: of one that is written down, and of one that another step makes."""

from paddleflow.pipeline import PF_LOOP_ARGUMENT, FSOptions, MainFS, Pipeline, step


@step(name="list")
def count_up(count: int):
    return list(range(1, count + 1))


@step
def square(number: int):
    return number**2


@step
def add(numbers):
    print("the squares add up to", sum(numbers))


@step
def greet(name):
    print("hello", name)


@Pipeline(name="loop", docker_env="python:3.12", fs_options=FSOptions(MainFS("work")))
def loop(count=3):
    numbers = count_up(count)
    squares = square.options(loop_argument=numbers.result)(PF_LOOP_ARGUMENT)
    add(squares)  # what a repeated step made comes as a list
    greet.options(loop_argument=["Ada", "Grace", "Linus"])(PF_LOOP_ARGUMENT)


if __name__ == "__main__":
    run = loop().submit()
    for line in run.logs(follow=True):
        print(line, end="")
    print(run.wait().status)
