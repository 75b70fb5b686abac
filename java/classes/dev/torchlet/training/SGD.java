package dev.torchlet.training;

import dev.torchlet.DType;
import dev.torchlet.Tensor;
import dev.torchlet.internal.Native;
import dev.torchlet.internal.NativeHandle;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** Stochastic gradient descent, as {@code torch.optim.SGD}. It updates parameters in place. */
public final class SGD {
  private final Map<String, Tensor> parameters;
  private final NativeHandle handle;

  private SGD(Map<String, Tensor> namedParameters, long number) {
    parameters = new LinkedHashMap<>(namedParameters);
    handle = new NativeHandle(this, number, "SGD optimizer has been destroyed", Native::closeSgd);
  }

  public static SGD create(Map<String, Tensor> namedParameters, double learningRate) {
    return create(namedParameters, learningRate, 0, 0, 0, false);
  }

  /**
   * Creates an optimizer.
   *
   * @param namedParameters those of {@link TrainingModule#namedParameters}, or some of them
   * @throws IllegalArgumentException if a parameter is not float32
   */
  public static SGD create(
      Map<String, Tensor> namedParameters,
      double learningRate,
      double momentum,
      double dampening,
      double weightDecay,
      boolean nesterov) {
    for (Map.Entry<String, Tensor> parameter : namedParameters.entrySet()) {
      expectFloat("parameter", parameter.getKey(), parameter.getValue());
    }
    return new SGD(
        namedParameters,
        Native.openSgd(learningRate, momentum, dampening, weightDecay, nesterov));
  }

  private static void expectFloat(String what, String name, Tensor tensor) {
    if (tensor == null || tensor.dtype() != DType.FLOAT) {
      throw new IllegalArgumentException(
          what + " '" + name + "': expected a float32 tensor, found " + tensor);
    }
  }

  /**
   * Updates each parameter that has a gradient.
   *
   * @throws IllegalArgumentException if a gradient has no parameter, or another shape
   */
  public synchronized void step(Map<String, Tensor> namedGradients) {
    for (Map.Entry<String, Tensor> entry : namedGradients.entrySet()) {
      String name = entry.getKey();
      Tensor gradient = entry.getValue();
      Tensor parameter = parameters.get(name);
      if (parameter == null) {
        throw new IllegalArgumentException(
            "gradient '" + name + "': expected one of " + parameters.keySet());
      }
      expectFloat("gradient", name, gradient);
      if (!Arrays.equals(parameter.shape(), gradient.shape())) {
        throw new IllegalArgumentException(
            "gradient '" + name + "': expected the shape of " + parameter + ", found " + gradient);
      }
    }
    // Nothing is updated unless everything fits.
    for (Map.Entry<String, Tensor> gradient : namedGradients.entrySet()) {
      Native.stepSgd(
          handle.number(),
          gradient.getKey(),
          parameters.get(gradient.getKey()).getRawDataBuffer(),
          gradient.getValue().getRawDataBuffer());
    }
  }
}
