"""`paddleflow completion`: shell completion scripts."""

from __future__ import annotations

import click

from paddleflow.cli.lazy import Command

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    To enable it permanently:
      bash   paddleflow completion bash >> ~/.bashrc
      zsh    paddleflow completion zsh >> ~/.zshrc
      fish   paddleflow completion fish > ~/.config/fish/completions/paddleflow.fish
    """
    from click.shell_completion import get_completion_class

    from paddleflow.cli.main import root

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "paddleflow", "_PADDLEFLOW_COMPLETE")
    # `source()` of bash would start a bash to check its version; the script itself does not depend on it.
    click.echo(script.source_template % script.source_vars())
