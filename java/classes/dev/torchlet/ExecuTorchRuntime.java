package dev.torchlet;

import dev.torchlet.internal.Native;
import java.io.File;

/** What this build of the runtime supports. */
public final class ExecuTorchRuntime {
  private static final ExecuTorchRuntime INSTANCE = new ExecuTorchRuntime();

  private ExecuTorchRuntime() {}

  /** The runtime. Loads the native library, so that its absence is noticed here. */
  public static ExecuTorchRuntime getRuntime() {
    version();
    return INSTANCE;
  }

  /** Version of the native library. */
  public static String version() {
    return Native.VERSION;
  }

  /** The names of all kernels. */
  public static String[] getRegisteredOps() {
    return Native.operatorNames();
  }

  /** The names of all delegate backends. */
  public static String[] getRegisteredBackends() {
    return Native.backendNames();
  }

  /** The names that {@link Module.Builder#runOn} accepts. */
  public static String[] getProcessors() {
    return Native.processorNames();
  }

  /**
   * Checks that a path is a readable file.
   *
   * @throws IllegalArgumentException if it is not
   */
  public static void validateFilePath(String path, String description) {
    String reason = null;
    if (path == null) {
      reason = "path is null";
    } else if (!new File(path).exists()) {
      reason = "path does not exist: " + path;
    } else if (!new File(path).isFile()) {
      reason = "path is not a file: " + path;
    } else if (!new File(path).canRead()) {
      reason = "path is not readable: " + path;
    }
    if (reason != null) {
      throw new IllegalArgumentException("Cannot load " + description + ": " + reason);
    }
  }
}
