"""`glassgate generate`: continue text or music with a language model, and print each token immediately."""

import sys

from glassgate.cli.trained import load, run_parser
from glassgate.tasks.language_model import LanguageModel


def command(argv: list[str]) -> None:
    """Run `glassgate generate` with the given arguments."""
    parser = run_parser("generate", "Continue a text with a trained language model.")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="beginning of the text (default: empty)")
    parser.add_argument("--length", type=int, default=500, metavar="N", help="tokens to generate (default: 500)")
    parser.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        metavar="X",
        help="divides the logits; 0 takes the most probable token (default: 1.0)",
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="N", help="sample from the N most probable tokens (default: all)"
    )
    parser.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        metavar="X",
        help="sample from the most probable tokens with this total probability (default: 1.0)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same text (default: random)")
    arguments = parser.parse_args(argv)
    task: LanguageModel = load(arguments, LanguageModel)
    pieces = task.generate(
        arguments.prompt,
        arguments.length,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
    )
    sys.stdout.write(arguments.prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
