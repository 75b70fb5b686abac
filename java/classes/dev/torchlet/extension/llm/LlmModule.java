package dev.torchlet.extension.llm;

import dev.torchlet.EValue;
import dev.torchlet.ExecuTorchRuntime;
import dev.torchlet.ExecutorchRuntimeException;
import dev.torchlet.Tensor;
import dev.torchlet.internal.Native;
import dev.torchlet.internal.NativeHandle;
import dev.torchlet.internal.Values;
import java.io.Closeable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A language model with its context.
 *
 * <pre>{@code
 * try (LlmModule model = new LlmModule("model.pte", "tokenizer.json", 0f)) {
 *   model.generate("In the beginning", System.out::print);
 * }
 * }</pre>
 *
 * <p>Any thread may use it; calls run one after the other, except for {@link #stop}. A callback
 * cannot use the module that calls it, except for {@code stop}.
 */
public class LlmModule implements Closeable {
  public static final int MODEL_TYPE_TEXT = LlmModuleConfig.MODEL_TYPE_TEXT;
  public static final int MODEL_TYPE_TEXT_VISION = LlmModuleConfig.MODEL_TYPE_TEXT_VISION;
  public static final int MODEL_TYPE_MULTIMODAL = LlmModuleConfig.MODEL_TYPE_MULTIMODAL;

  private static final int DEFAULT_SEQ_LEN = 128;
  private static final boolean DEFAULT_ECHO = true;

  /** As the module was opened. */
  private static final float DEFAULT_TEMPERATURE = -1;

  private final LlmModuleConfig config;
  private final ReentrantLock lock = new ReentrantLock();

  /** {@code null} until the model is loaded. */
  private volatile NativeHandle handle;

  private volatile boolean isClosed;

  /** Whether the next prompt begins the context, and so has BOS tokens. */
  private boolean isAtStart = true;

  public LlmModule(LlmModuleConfig config) {
    ExecuTorchRuntime.validateFilePath(config.getModulePath(), "model path");
    ExecuTorchRuntime.validateFilePath(config.getTokenizerPath(), "tokenizer path");
    for (String path : config.getDataFiles()) {
      ExecuTorchRuntime.validateFilePath(path, "data path");
    }
    this.config = config;
  }

  public LlmModule(String modulePath, String tokenizerPath, float temperature) {
    this(MODEL_TYPE_TEXT, modulePath, tokenizerPath, temperature);
  }

  public LlmModule(
      String modulePath, String tokenizerPath, float temperature, String dataPath) {
    this(MODEL_TYPE_TEXT, modulePath, tokenizerPath, temperature, dataPath);
  }

  public LlmModule(int modelType, String modulePath, String tokenizerPath, float temperature) {
    this(modelType, modulePath, tokenizerPath, temperature, Collections.<String>emptyList());
  }

  public LlmModule(
      int modelType,
      String modulePath,
      String tokenizerPath,
      float temperature,
      String dataPath) {
    this(modelType, modulePath, tokenizerPath, temperature, dataPath, 0, 0);
  }

  public LlmModule(
      int modelType,
      String modulePath,
      String tokenizerPath,
      float temperature,
      String dataPath,
      int numBos,
      int numEos) {
    this(modelType, modulePath, tokenizerPath, temperature, listOf(dataPath), numBos, numEos);
  }

  public LlmModule(
      int modelType,
      String modulePath,
      String tokenizerPath,
      float temperature,
      List<String> dataFiles) {
    this(modelType, modulePath, tokenizerPath, temperature, dataFiles, 0, 0);
  }

  public LlmModule(
      int modelType,
      String modulePath,
      String tokenizerPath,
      float temperature,
      List<String> dataFiles,
      int numBos,
      int numEos) {
    this(
        LlmModuleConfig.create()
            .modelType(modelType)
            .modulePath(modulePath)
            .tokenizerPath(tokenizerPath)
            .temperature(temperature)
            .dataFiles(new ArrayList<>(dataFiles))
            .numBos(numBos)
            .numEos(numEos)
            .build());
  }

  private static List<String> listOf(String path) {
    return path == null ? Collections.<String>emptyList() : Collections.singletonList(path);
  }

  /** Waits for the lock, and checks that the module can be used. */
  private void begin() {
    lock.lock();
    String reason = null;
    if (lock.getHoldCount() > 1) {
      reason = "Cannot call LlmModule methods from within a callback";
    } else if (isClosed) {
      reason = "LlmModule has been destroyed";
    }
    if (reason != null) {
      lock.unlock();
      throw new IllegalStateException(reason);
    }
  }

  /** Loads the model, unless that was done, and returns its number. */
  private long loaded() {
    if (handle == null) {
      List<String> settings = new ArrayList<>();
      String[] modes = {"read", "map", "lock", "lock_if_allowed"};
      Collections.addAll(settings, "load_mode", modes[config.getLoadMode()]);
      Collections.addAll(settings, "run_on", config.getProcessor());
      if (config.getThreads() != 0) {
        Collections.addAll(settings, "threads", Integer.toString(config.getThreads()));
      }
      for (String path : config.getDataFiles()) {
        Collections.addAll(settings, "data", path);
      }
      long number =
          Native.openRunner(
              config.getModulePath(),
              config.getTokenizerPath(),
              settings.toArray(new String[0]),
              config.getModelType() == MODEL_TYPE_MULTIMODAL);
      handle =
          new NativeHandle(this, number, "LlmModule has been destroyed", Native::closeRunner);
    }
    return handle.number();
  }

  /** Loads the model, which otherwise happens at its first use. */
  public void load() {
    begin();
    try {
      loaded();
    } finally {
      lock.unlock();
    }
  }

  public void generate(String prompt, LlmCallback llmCallback) {
    generate(prompt, DEFAULT_SEQ_LEN, llmCallback, DEFAULT_ECHO);
  }

  public void generate(String prompt, int seqLen, LlmCallback llmCallback) {
    generate(prompt, seqLen, llmCallback, DEFAULT_ECHO);
  }

  public void generate(String prompt, LlmCallback llmCallback, boolean echo) {
    generate(prompt, DEFAULT_SEQ_LEN, llmCallback, echo);
  }

  public void generate(String prompt, int seqLen, LlmCallback llmCallback, boolean echo) {
    generate(prompt, seqLen, llmCallback, echo, DEFAULT_TEMPERATURE, 0, 0);
  }

  public void generate(
      String prompt,
      int seqLen,
      LlmCallback llmCallback,
      boolean echo,
      float temperature,
      int numBos,
      int numEos) {
    run(null, prompt, -1, seqLen, llmCallback, echo, temperature, numBos, numEos);
  }

  /** Generates text after a prompt, which continues the context. */
  public void generate(String prompt, LlmGenerationConfig config, LlmCallback llmCallback) {
    run(
        null,
        prompt,
        config.getMaxNewTokens(),
        config.getSeqLen(),
        llmCallback,
        config.isEcho(),
        config.getTemperature(),
        config.getNumBos(),
        config.getNumEos());
  }

  /** Generates text after an image and a prompt. */
  public void generate(
      int[] image,
      int width,
      int height,
      int channels,
      String prompt,
      int seqLen,
      LlmCallback llmCallback,
      boolean echo) {
    generate(
        image, width, height, channels, prompt, seqLen, llmCallback, echo, DEFAULT_TEMPERATURE);
  }

  /** Generates text after an image and a prompt. */
  public void generate(
      int[] image,
      int width,
      int height,
      int channels,
      String prompt,
      int seqLen,
      LlmCallback llmCallback,
      boolean echo,
      float temperature) {
    generate(
        image, width, height, channels, prompt, seqLen, llmCallback, echo, temperature, 0, 0);
  }

  /** Generates text after an image and a prompt. */
  public void generate(
      int[] image,
      int width,
      int height,
      int channels,
      String prompt,
      int seqLen,
      LlmCallback llmCallback,
      boolean echo,
      float temperature,
      int numBos,
      int numEos) {
    Tensor tensor = image == null ? null : pixels(image, width, height, channels);
    run(tensor, prompt, -1, seqLen, llmCallback, echo, temperature, numBos, numEos);
  }

  private void run(
      Tensor image,
      String prompt,
      int maxNewTokens,
      int seqLen,
      LlmCallback callback,
      boolean echo,
      float temperature,
      int numBos,
      int numEos) {
    if (prompt == null || callback == null) {
      throw new IllegalArgumentException(
          (prompt == null ? "prompt" : "llmCallback") + ": expected an object, found null");
    }
    begin();
    try {
      String stats;
      try {
        long number = loaded();
        if (image != null) {
          feed(number, true, image);
        }
        stats =
            Native.generate(
                number,
                prompt,
                maxNewTokens,
                seqLen,
                temperature < 0 ? config.getTemperature() : temperature,
                echo,
                isAtStart ? Math.max(numBos, config.getNumBos()) : 0,
                Math.max(numEos, config.getNumEos()),
                callback);
        isAtStart = false;
      } catch (ExecutorchRuntimeException error) {
        callback.onError(error.getErrorCode(), error.getMessage());
        throw error;
      }
      callback.onStats(stats);
    } finally {
      lock.unlock();
    }
  }

  /** Feeds text without generating. */
  public void prefillPrompt(String prompt) {
    begin();
    try {
      Native.prefillText(loaded(), prompt, isAtStart ? config.getNumBos() : 0);
      isAtStart = false;
    } finally {
      lock.unlock();
    }
  }

  /** Feeds an image without generating: bytes as {@code int}, channel by channel. */
  public void prefillImages(int[] image, int width, int height, int channels) {
    prefill(true, pixels(image, width, height, channels));
  }

  /** Feeds an image without generating: normalized values, channel by channel. */
  public void prefillImages(float[] image, int width, int height, int channels) {
    long size = size(width, height, channels, 4);
    checkLength(image == null ? -1 : image.length, size / 4, "values");
    prefill(true, Tensor.fromBlob(image, new long[] {1, channels, height, width}));
  }

  /** Feeds an image without generating: bytes from the position of a direct buffer. */
  public void prefillImages(ByteBuffer image, int width, int height, int channels) {
    ByteBuffer bytes = slice(image, size(width, height, channels, 1));
    prefill(true, Tensor.fromBlobUnsigned(bytes, new long[] {1, channels, height, width}));
  }

  /** Feeds an image without generating: normalized floats from the position of a direct buffer. */
  public void prefillNormalizedImage(ByteBuffer image, int width, int height, int channels) {
    if (image != null && image.order() != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException(
          "Input ByteBuffer must use native byte order (ByteOrder.nativeOrder()).");
    }
    if (image != null && image.position() % 4 != 0) {
      throw new IllegalArgumentException(
          "Input ByteBuffer position (" + image.position() + ") must be 4-byte aligned.");
    }
    FloatBuffer floats = slice(image, size(width, height, channels, 4)).asFloatBuffer();
    prefill(true, Tensor.fromBlob(floats, new long[] {1, channels, height, width}));
  }

  /** Feeds preprocessed audio without generating. */
  public void prefillAudio(float[] audio, int batchSize, int nBins, int nFrames) {
    checkLength(
        audio == null ? -1 : audio.length, size(batchSize, nBins, nFrames, 4) / 4, "values");
    prefill(false, Tensor.fromBlob(audio, new long[] {batchSize, nBins, nFrames}));
  }

  /** Feeds preprocessed audio of bytes without generating. */
  public void prefillAudio(byte[] audio, int batchSize, int nBins, int nFrames) {
    checkLength(
        audio == null ? -1 : audio.length, size(batchSize, nBins, nFrames, 1), "bytes");
    prefill(false, Tensor.fromBlobUnsigned(audio, new long[] {batchSize, nBins, nFrames}));
  }

  private void prefill(boolean isImage, Tensor tensor) {
    begin();
    try {
      feed(loaded(), isImage, tensor);
    } finally {
      lock.unlock();
    }
  }

  private void feed(long number, boolean isImage, Tensor tensor) {
    Values values = Values.of(new EValue[] {EValue.from(tensor)});
    int numBos = isAtStart ? config.getNumBos() : 0;
    Native.prefillTensor(number, isImage, values.description, values.objects, numBos);
    isAtStart = false;
  }

  private static Tensor pixels(int[] image, int width, int height, int channels) {
    checkLength(image == null ? -1 : image.length, size(width, height, channels, 1), "values");
    byte[] bytes = new byte[image.length];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) image[i];
    }
    return Tensor.fromBlobUnsigned(bytes, new long[] {1, channels, height, width});
  }

  private static void checkLength(int found, long expected, String unit) {
    if (found != expected) {
      throw new IllegalArgumentException(
          "expected "
              + expected
              + " "
              + unit
              + ", found "
              + (found < 0 ? "null" : Integer.toString(found)));
    }
  }

  /** Size in bytes. */
  private static long size(int a, int b, int c, int element) {
    if (a <= 0 || b <= 0 || c <= 0) {
      throw new IllegalArgumentException(
          "expected sizes above 0, found " + a + ", " + b + " and " + c);
    }
    if (Integer.MAX_VALUE / element / a / b / c == 0) {
      throw new IllegalArgumentException(
          "the sizes " + a + ", " + b + " and " + c + " exceed 2 GiB");
    }
    return (long) a * b * c * element;
  }

  private static ByteBuffer slice(ByteBuffer buffer, long size) {
    if (buffer == null || !buffer.isDirect()) {
      throw new IllegalArgumentException(
          "Input ByteBuffer must be direct, found "
              + (buffer == null ? "null" : "one on the heap"));
    }
    if (buffer.remaining() < size) {
      throw new IllegalArgumentException(
          "ByteBuffer remaining ("
              + buffer.remaining()
              + ") must be at least width*height*channels of its elements ("
              + size
              + " bytes).");
    }
    ByteBuffer all = buffer.duplicate();
    all.limit(all.position() + (int) size);
    return all.slice().order(ByteOrder.nativeOrder());
  }

  /** Clears the context. */
  public void resetContext() {
    begin();
    try {
      if (handle != null) {
        Native.resetRunner(handle.number());
      }
      isAtStart = true;
    } finally {
      lock.unlock();
    }
  }

  /** Ends the current generation, if any, before its next token. Any thread may call it. */
  public void stop() {
    NativeHandle handle = this.handle;
    if (handle != null && handle.isOpen()) {
      try {
        Native.stopRunner(handle.number());
      } catch (IllegalStateException closed) {
        // Another thread closed the module meanwhile: nothing runs.
      }
    }
  }

  /**
   * Frees the model, unless that was done.
   *
   * @throws IllegalStateException if the model is in use
   */
  @Override
  public void close() {
    if (!lock.tryLock()) {
      throw new IllegalStateException("Cannot close module while method is executing");
    }
    try {
      if (lock.getHoldCount() > 1) {
        throw new IllegalStateException(
            "Cannot close module from within a callback during execution");
      }
      isClosed = true;
      if (handle != null) {
        handle.close();
      }
    } finally {
      lock.unlock();
    }
  }

  /** As {@link #close}. */
  public void resetNative() {
    close();
  }
}
