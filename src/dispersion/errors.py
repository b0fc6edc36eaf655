"""Everything the package raises on purpose.

    DispersionError
    ├── ArgumentError        (also ValueError)  an argument breaks a rule; exit code 2
    ├── CheckpointError      a file is unreadable, malformed or lies about itself; exit code 2
    │   └── UnsafeFileError  reading the file could run code (pickle); exit code 2
    ├── OutputError          a result could not be written; exit code 2
    └── UnsupportedError     well-formed, but no bound is known for it; exit code 3

A message is one line: it names the argument or tensor, the rule, what came and the remedy.
"""


class DispersionError(Exception):
    """Base class; `exit_code` is what the command line returns for it."""

    exit_code = 2


class ArgumentError(DispersionError, ValueError):
    """An argument breaks a rule stated in the message."""


class CheckpointError(DispersionError):
    """A checkpoint cannot be read, is malformed, or holds values that are not finite."""


class UnsafeFileError(CheckpointError):
    """The file format can execute code when read, so it is never opened."""


class OutputError(DispersionError):
    """A result file could not be written; nothing half-written is left behind."""


class UnsupportedError(DispersionError):
    """The input is well-formed, but this package has no certified bound for it."""

    exit_code = 3
