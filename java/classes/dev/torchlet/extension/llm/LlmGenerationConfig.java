package dev.torchlet.extension.llm;

/** Options of a generation. */
public final class LlmGenerationConfig {
  private final boolean echo;
  private final int maxNewTokens;
  private final int seqLen;
  private final float temperature;
  private final int numBos;
  private final int numEos;

  private LlmGenerationConfig(Builder builder) {
    echo = builder.echo;
    maxNewTokens = builder.maxNewTokens;
    seqLen = builder.seqLen;
    temperature = builder.temperature;
    numBos = builder.numBos;
    numEos = builder.numEos;
  }

  public static Builder create() {
    return new Builder();
  }

  public boolean isEcho() {
    return echo;
  }

  public int getMaxNewTokens() {
    return maxNewTokens;
  }

  public int getSeqLen() {
    return seqLen;
  }

  public float getTemperature() {
    return temperature;
  }

  public int getNumBos() {
    return numBos;
  }

  public int getNumEos() {
    return numEos;
  }

  /** Sets options, which have the defaults of ExecuTorch. */
  public static final class Builder {
    private boolean echo = true;
    private int maxNewTokens = -1;
    private int seqLen = -1;
    private float temperature = 0.8f;
    private int numBos;
    private int numEos;

    private Builder() {}

    /** Whether the prompt is passed to the callback before the generated text. */
    public Builder echo(boolean echo) {
      this.echo = echo;
      return this;
    }

    /** Maximum number of generated tokens; -1 for no limit but the context. */
    public Builder maxNewTokens(int maxNewTokens) {
      this.maxNewTokens = maxNewTokens;
      return this;
    }

    /** Maximum number of tokens in the context, with the prompt; -1 for no limit. */
    public Builder seqLen(int seqLen) {
      this.seqLen = seqLen;
      return this;
    }

    /** Temperature of sampling; 0 chooses the most likely token, -1 as the module was opened. */
    public Builder temperature(float temperature) {
      this.temperature = temperature;
      return this;
    }

    /** Number of BOS tokens before the first prompt of a context. */
    public Builder numBos(int numBos) {
      this.numBos = numBos;
      return this;
    }

    /** Number of EOS tokens after the prompt. */
    public Builder numEos(int numEos) {
      this.numEos = numEos;
      return this;
    }

    public LlmGenerationConfig build() {
      return new LlmGenerationConfig(this);
    }
  }
}
