package dev.torchlet;

/** An error of the runtime, with ExecuTorch's code ({@code runtime/core/error.h}). */
public class ExecutorchRuntimeException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public static final int OK = 0x00;
  public static final int INTERNAL = 0x01;
  public static final int INVALID_STATE = 0x02;
  public static final int END_OF_METHOD = 0x03;
  public static final int ALREADY_LOADED = 0x04;
  public static final int NOT_SUPPORTED = 0x10;
  public static final int NOT_IMPLEMENTED = 0x11;
  public static final int INVALID_ARGUMENT = 0x12;
  public static final int INVALID_TYPE = 0x13;
  public static final int OPERATOR_MISSING = 0x14;
  public static final int REGISTRATION_EXCEEDING_MAX_KERNELS = 0x15;
  public static final int REGISTRATION_ALREADY_REGISTERED = 0x16;
  public static final int NOT_FOUND = 0x20;
  public static final int MEMORY_ALLOCATION_FAILED = 0x21;
  public static final int ACCESS_FAILED = 0x22;
  public static final int INVALID_PROGRAM = 0x23;
  public static final int INVALID_EXTERNAL_DATA = 0x24;
  public static final int OUT_OF_RESOURCES = 0x25;
  public static final int DELEGATE_INVALID_COMPATIBILITY = 0x30;
  public static final int DELEGATE_MEMORY_ALLOCATION_FAILED = 0x31;
  public static final int DELEGATE_INVALID_HANDLE = 0x32;

  private final int errorCode;

  public ExecutorchRuntimeException(int errorCode, String details) {
    super(message(errorCode, details));
    this.errorCode = errorCode;
  }

  public ExecutorchRuntimeException(int errorCode, String details, Throwable cause) {
    super(message(errorCode, details), cause);
    this.errorCode = errorCode;
  }

  public int getErrorCode() {
    return errorCode;
  }

  /** The newest log lines of the runtime. */
  public String getDetailedError() {
    StringBuilder text = new StringBuilder();
    for (String line : Module.readLogBufferStatic()) {
      text.append(text.length() == 0 ? "\nDetailed logs:\n" : "").append(line).append('\n');
    }
    return text.toString();
  }

  /** Creates the exception of a code. The native library calls it. */
  public static RuntimeException makeExecutorchException(int errorCode, String details) {
    return errorCode == INVALID_ARGUMENT
        ? new ExecutorchInvalidArgumentException(details)
        : new ExecutorchRuntimeException(errorCode, details);
  }

  /** An argument that does not fit: a wrong shape, element type, method or number of inputs. */
  public static class ExecutorchInvalidArgumentException extends ExecutorchRuntimeException {
    private static final long serialVersionUID = 1L;

    public ExecutorchInvalidArgumentException(String details) {
      super(INVALID_ARGUMENT, details);
    }
  }

  private static String message(int code, String details) {
    String hex = "0x" + Integer.toHexString(code);
    return "[ExecuTorch Error "
        + hex
        + "] "
        + name(code, hex)
        + ": "
        + (details == null ? "No details provided" : details);
  }

  private static String name(int code, String hex) {
    switch (code) {
      case OK:
        return "Operation successful";
      case INTERNAL:
        return "Internal error";
      case INVALID_STATE:
        return "Invalid state";
      case END_OF_METHOD:
        return "End of method reached";
      case ALREADY_LOADED:
        return "Already loaded";
      case NOT_SUPPORTED:
        return "Operation not supported";
      case NOT_IMPLEMENTED:
        return "Operation not implemented";
      case INVALID_ARGUMENT:
        return "Invalid argument";
      case INVALID_TYPE:
        return "Invalid type";
      case OPERATOR_MISSING:
        return "Operator missing";
      case REGISTRATION_EXCEEDING_MAX_KERNELS:
        return "Exceeded max kernels";
      case REGISTRATION_ALREADY_REGISTERED:
        return "Kernel already registered";
      case NOT_FOUND:
        return "Resource not found";
      case MEMORY_ALLOCATION_FAILED:
        return "Memory allocation failed";
      case ACCESS_FAILED:
        return "Access failed";
      case INVALID_PROGRAM:
        return "Invalid program";
      case INVALID_EXTERNAL_DATA:
        return "Invalid external data";
      case OUT_OF_RESOURCES:
        return "Out of resources";
      case DELEGATE_INVALID_COMPATIBILITY:
        return "Delegate invalid compatibility";
      case DELEGATE_MEMORY_ALLOCATION_FAILED:
        return "Delegate memory allocation failed";
      case DELEGATE_INVALID_HANDLE:
        return "Delegate invalid handle";
      default:
        return "Unknown error code " + hex;
    }
  }
}
