"""``python -m derivations``: the same as ``statmech-attn verify``."""

import sys

from statmech_attn.cli import main

if __name__ == "__main__":
    sys.exit(main(["verify", *sys.argv[1:]]))
