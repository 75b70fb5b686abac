package dev.torchlet;

import java.util.ArrayList;
import java.util.List;

/** Metadata of a method. */
public final class MethodMetadata {
  private static final int TENSOR = 1;

  private final String name;
  private final String[] backends;
  private final ValueMetadata[] inputs;
  private final ValueMetadata[] outputs;

  /**
   * Reads the description of {@code Native.methodInterface}: the number of inputs, then the inputs
   * and outputs.
   */
  MethodMetadata(String name, String[] backends, long[] description) {
    this.name = name;
    this.backends = backends;
    List<ValueMetadata> values = new ArrayList<>();
    for (int at = 1; at < description.length; ) {
      values.add(new ValueMetadata(description, at));
      at += description[at] == TENSOR ? 4 + (int) description[at + 3] : 1;
    }
    int inputs = (int) description[0];
    this.inputs = values.subList(0, inputs).toArray(new ValueMetadata[0]);
    this.outputs = values.subList(inputs, values.size()).toArray(new ValueMetadata[0]);
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
