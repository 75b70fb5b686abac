package dev.torchlet.extension.llm;

import dev.torchlet.Module;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Options of an {@link LlmModule}. */
public final class LlmModuleConfig {
  public static final int LOAD_MODE_FILE = Module.LOAD_MODE_FILE;
  public static final int LOAD_MODE_MMAP = Module.LOAD_MODE_MMAP;
  public static final int LOAD_MODE_MMAP_USE_MLOCK = Module.LOAD_MODE_MMAP_USE_MLOCK;
  public static final int LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS =
      Module.LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS;
  public static final int MODEL_TYPE_TEXT = 1;
  public static final int MODEL_TYPE_TEXT_VISION = 2;
  public static final int MODEL_TYPE_MULTIMODAL = 2;

  private final String modulePath;
  private final String tokenizerPath;
  private final float temperature;
  private final List<String> dataFiles;
  private final int modelType;
  private final int numBos;
  private final int numEos;
  private final int loadMode;
  private final String processor;
  private final int threads;

  private LlmModuleConfig(Builder builder) {
    modulePath = builder.modulePath;
    tokenizerPath = builder.tokenizerPath;
    temperature = builder.temperature;
    dataFiles = Collections.unmodifiableList(new ArrayList<>(builder.dataFiles));
    modelType = builder.modelType;
    numBos = builder.numBos;
    numEos = builder.numEos;
    loadMode = builder.loadMode;
    processor = builder.processor;
    threads = builder.threads;
  }

  public static Builder create() {
    return new Builder();
  }

  public String getModulePath() {
    return modulePath;
  }

  public String getTokenizerPath() {
    return tokenizerPath;
  }

  public float getTemperature() {
    return temperature;
  }

  /** The first file of external weights, or {@code null}. */
  public String getDataPath() {
    return dataFiles.isEmpty() ? null : dataFiles.get(0);
  }

  List<String> getDataFiles() {
    return dataFiles;
  }

  public int getModelType() {
    return modelType;
  }

  public int getNumBos() {
    return numBos;
  }

  public int getNumEos() {
    return numEos;
  }

  public int getLoadMode() {
    return loadMode;
  }

  String getProcessor() {
    return processor;
  }

  int getThreads() {
    return threads;
  }

  /** Sets options, which have the defaults of ExecuTorch. */
  public static final class Builder {
    private String modulePath;
    private String tokenizerPath;
    private float temperature = 0.8f;
    private List<String> dataFiles = new ArrayList<>();
    private int modelType = MODEL_TYPE_TEXT;
    private int numBos;
    private int numEos;
    private int loadMode = LOAD_MODE_MMAP;
    private String processor = "auto";
    private int threads;

    private Builder() {}

    public Builder modulePath(String modulePath) {
      this.modulePath = modulePath;
      return this;
    }

    public Builder tokenizerPath(String tokenizerPath) {
      this.tokenizerPath = tokenizerPath;
      return this;
    }

    /** Temperature of generations that set none. */
    public Builder temperature(float temperature) {
      this.temperature = temperature;
      return this;
    }

    /** A file of external weights, or {@code null} for none. */
    public Builder dataPath(String dataPath) {
      dataFiles = new ArrayList<>();
      if (dataPath != null) {
        dataFiles.add(dataPath);
      }
      return this;
    }

    Builder dataFiles(List<String> paths) {
      dataFiles = paths;
      return this;
    }

    /** One of the constants. A multimodal program without encoders is refused when it is loaded. */
    public Builder modelType(int modelType) {
      if (modelType != MODEL_TYPE_TEXT && modelType != MODEL_TYPE_MULTIMODAL) {
        throw new IllegalArgumentException(
            "modelType: expected MODEL_TYPE_TEXT or MODEL_TYPE_MULTIMODAL, found " + modelType);
      }
      this.modelType = modelType;
      return this;
    }

    /** Number of BOS tokens before the first prompt of a context. */
    public Builder numBos(int numBos) {
      this.numBos = numBos;
      return this;
    }

    /** Number of EOS tokens after a prompt. */
    public Builder numEos(int numEos) {
      this.numEos = numEos;
      return this;
    }

    public Builder loadMode(int loadMode) {
      if (loadMode < LOAD_MODE_FILE || loadMode > LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS) {
        throw new IllegalArgumentException("Unknown load mode: " + loadMode);
      }
      this.loadMode = loadMode;
      return this;
    }

    /** The processor, as in {@link Module.Builder#runOn}. */
    public Builder runOn(String processor) {
      this.processor = processor;
      return this;
    }

    /** Number of threads of kernels; 0 chooses by the machine. */
    public Builder threads(int threads) {
      this.threads = threads;
      return this;
    }

    /**
     * @throws IllegalArgumentException if the path of the model or tokenizer is missing
     */
    public LlmModuleConfig build() {
      if (modulePath == null || tokenizerPath == null) {
        throw new IllegalArgumentException("Module path and tokenizer path are required");
      }
      return new LlmModuleConfig(this);
    }
  }
}
