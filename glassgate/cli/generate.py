"""`glassgate generate`: a language model's own text or music, written as it is made."""

import sys

from glassgate.cli.parser import Parser
from glassgate.tasks import run_class
from glassgate.tasks.errors import RunError
from glassgate.tasks.language_model import LanguageModel


def command(words: list[str]) -> None:
    """Generate as the words after `glassgate generate` say."""
    parser = Parser(prog="glassgate generate", description="Let a trained language model go on with a text.")
    parser.add_argument("run", metavar="RUN", help="folder that training a language model made")
    parser.add_argument("--prompt", default="", help="what the text begins with (nothing)")
    parser.add_argument("--length", type=int, default=500, metavar="INT", help="units to make (500)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="FLOAT", help="below 1 keeps to the likely; 0: always (1.0)"
    )
    parser.add_argument("--top-k", type=int, default=0, metavar="INT", help="choose among so many; 0 for all (0)")
    parser.add_argument(
        "--top-p", type=float, default=1.0, metavar="FLOAT", help="choose among the likeliest of this share (1.0)"
    )
    parser.add_argument("--seed", type=int, metavar="INT", help="makes the same again (another text each time)")
    arguments = parser.parse_args(words)
    kind = run_class(arguments.run)
    if not issubclass(kind, LanguageModel):
        raise RunError(
            f"{arguments.run}: expected a run of {LanguageModel.name}, got one of {kind.name}; "
            f"train one: glassgate train {LanguageModel.name}"
        )
    made = kind.load(arguments.run).generate(
        arguments.prompt,
        arguments.length,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
    )
    sys.stdout.write(arguments.prompt)
    for piece in made:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
