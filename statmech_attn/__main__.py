"""``python -m statmech_attn``: the command line."""

from statmech_attn.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
