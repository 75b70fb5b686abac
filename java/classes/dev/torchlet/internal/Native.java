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

  public static native long openRunner(
      String path, String tokenizer, String[] settings, boolean isMultimodal);

  public static native void closeRunner(long runner);

  public static native String generate(
      long runner,
      String prompt,
      int maxNewTokens,
      int seqLen,
      float temperature,
      boolean echo,
      int numBos,
      int numEos,
      Object callback);

  public static native void prefillText(long runner, String text, int numBos);

  public static native void prefillTensor(
      long runner, boolean isImage, long[] description, Object[] objects, int numBos);

  public static native void resetRunner(long runner);

  public static native void stopRunner(long runner);

  public static native long openTraining(String path, String[] settings);

  public static native void closeTraining(long module);

  public static native Object[] executeForwardBackward(
      long module, String method, long[] description, Object[] objects);

  public static native Object[] namedParameters(long module, String method);

  public static native Object[] namedGradients(long module, String method);

  public static native void setParameters(
      long module, String method, String[] names, long[] description, Object[] objects);

  public static native long openSgd(
      double learningRate, double momentum, double dampening, double weightDecay, boolean nesterov);

  public static native void closeSgd(long optimizer);

  public static native void stepSgd(
      long optimizer, String name, Object parameter, Object gradient);
}
