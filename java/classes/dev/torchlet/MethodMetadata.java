package dev.torchlet;

/** Metadata of a method. */
public final class MethodMetadata {
  private static final int TENSOR = 1;

  private final String name;
  private final String[] backends;
  private final ValueMetadata[] inputs;
  private final ValueMetadata[] outputs;

  MethodMetadata(String name, String[] backends, long[] description) {
    this.name = name;
    this.backends = backends;
    this.inputs = new ValueMetadata[(int) description[0]];
    int at = 1;
    int outputs = -inputs.length;
    for (int i = 1; i < description.length; i += width(description, i)) {
      outputs++;
    }
    this.outputs = new ValueMetadata[outputs];
    for (int i = 0; i < inputs.length + outputs; i++) {
      ValueMetadata value = new ValueMetadata(description, at);
      at += width(description, at);
      if (i < inputs.length) {
        inputs[i] = value;
      } else {
        this.outputs[i - inputs.length] = value;
      }
    }
  }

  private static int width(long[] description, int at) {
    return description[at] == TENSOR ? 4 + (int) description[at + 3] : 1;
  }

  public String getName() {
    return name;
  }

  /** The backends of the method's delegates, as the program was exported or compiled. */
  public String[] getBackends() {
    return backends.clone();
  }

  public ValueMetadata[] getInputs() {
    return inputs.clone();
  }

  public ValueMetadata[] getOutputs() {
    return outputs.clone();
  }
}
