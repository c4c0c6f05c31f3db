"""`python -m paddleflow`: the command line, where the folder of its script is not on the PATH."""

from paddleflow.cli.main import main

if __name__ == "__main__":
    main()
