"""Errors of the runtime."""

# Names of ExecuTorch's error codes (`runtime/core/error.h`).
_NAMES = {
    0x01: "Internal",
    0x02: "InvalidState",
    0x03: "EndOfMethod",
    0x10: "NotSupported",
    0x11: "NotImplemented",
    0x12: "InvalidArgument",
    0x13: "InvalidType",
    0x14: "OperatorMissing",
    0x15: "RegistrationExceedingMaxKernels",
    0x16: "RegistrationAlreadyRegistered",
    0x20: "NotFound",
    0x21: "MemoryAllocationFailed",
    0x22: "AccessFailed",
    0x23: "InvalidProgram",
    0x24: "InvalidExternalData",
    0x25: "OutOfResources",
    0x30: "DelegateInvalidCompatibility",
    0x31: "DelegateMemoryAllocationFailed",
    0x32: "DelegateInvalidHandle",
}


class Error(RuntimeError):
    """An error of the runtime: a message, and ExecuTorch's error code.

    It is a `RuntimeError`, like the errors of ExecuTorch's Python API.
    """

    def __init__(self, sentence: str, code: int = 0x01) -> None:
        super().__init__(sentence, code)
        self.sentence = sentence
        self.code = code

    @property
    def name(self) -> str:
        """The name of the code, such as `InvalidArgument`."""
        return _NAMES.get(self.code, "Unknown")

    def __str__(self) -> str:
        return f"{self.sentence} (error 0x{self.code:02x}: {self.name})"


def invalid_argument(sentence: str) -> Error:
    """An error for an invalid argument."""
    return Error(sentence, 0x12)
