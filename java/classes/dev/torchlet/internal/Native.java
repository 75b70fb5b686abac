package dev.torchlet.internal;

/**
 * The native methods; {@code java/src} implements them. Not part of the API.
 *
 * <p>Programs and models are numbers, which are never reused: a number of a closed object is an
 * {@link IllegalStateException}.
 */
public final class Native {
  static {
    NativeLibrary.load();
    VERSION = start();
  }

  /** Version of the native library. */
  public static final String VERSION;

  private Native() {}

  private static native String start();

  public static native String[] operatorNames();

  public static native String[] backendNames();

  public static native String[] processorNames();

  public static native String[] logLines();

  public static native long openModule(String path, Object bytes, String[] settings);

  public static native void closeModule(long module);

  public static native long openModules();

  public static native String[] methodNames(long module);

  public static native String[] methodBackends(long module, String method);

  public static native long[] methodInterface(long module, String method);

  public static native void loadMethod(long module, String method);

  public static native Object[] execute(
      long module, String method, long[] description, Object[] objects);

  public static native void resetMethod(long module, String method);

  public static native long[] methodMemory(long module, String method);

  public static native String modulePlan(long module);

  public static native void setCancelled(long module, boolean isCancelled);

  public static native byte[] moduleEtdump(long module);
}
