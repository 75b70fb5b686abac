"""`python -m torchlet`: the command `torchlet`."""

import signal
import sys

from torchlet._torchlet import run_command


def main() -> int:
    """Runs the command with the arguments of the process."""
    # The command is one long native call, during which Python handles no signals.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["torchlet", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
