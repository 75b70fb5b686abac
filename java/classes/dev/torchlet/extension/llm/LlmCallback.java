package dev.torchlet.extension.llm;

/**
 * Receives the text of {@link LlmModule#generate}, on the thread that called it. An exception of a
 * callback ends the generation, and {@code generate} throws it.
 */
public interface LlmCallback {
  /** Called with each piece of text, which has whole characters. */
  void onResult(String result);

  /** Called at the end with statistics: a JSON object with the names of ExecuTorch's. */
  default void onStats(String stats) {}

  /** Called before {@code generate} throws an error of the runtime, with ExecuTorch's code. */
  default void onError(int errorCode, String message) {}
}
