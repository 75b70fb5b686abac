package dev.torchlet.training;

import dev.torchlet.EValue;
import dev.torchlet.ExecuTorchRuntime;
import dev.torchlet.Tensor;
import dev.torchlet.internal.Native;
import dev.torchlet.internal.NativeHandle;
import dev.torchlet.internal.Values;
import java.io.Closeable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A program that computes gradients, for training on the device.
 *
 * <pre>{@code
 * try (TrainingModule module = TrainingModule.load("model.pte")) {
 *   SGD optimizer = SGD.create(module.namedParameters("forward"), 0.1);
 *   for (int step = 0; step < 20; step++) {
 *     EValue loss = module.executeForwardBackward("forward", images, labels)[0];
 *     optimizer.step(module.namedGradients("forward"));
 *   }
 * }
 * }</pre>
 *
 * <p>The tensors of {@link #namedParameters} are what the next run computes with: an optimizer
 * updates them in place.
 */
public class TrainingModule implements Closeable {
  private final NativeHandle handle;
  private final ReentrantLock lock = new ReentrantLock();

  /** Parameters that were handed out, by method. */
  private final Map<String, Map<String, Tensor>> parameters = new HashMap<>();

  private TrainingModule(String modelPath, String dataPath) {
    // State on a GPU has no names.
    List<String> settings = new ArrayList<>();
    settings.add("run_on");
    settings.add("cpu");
    if (dataPath != null) {
      settings.add("data");
      settings.add(dataPath);
    }
    long number = Native.openTraining(modelPath, settings.toArray(new String[0]));
    handle =
        new NativeHandle(
            this, number, "TrainingModule has been destroyed", Native::closeTraining);
  }

  public static TrainingModule load(String modelPath) {
    ExecuTorchRuntime.validateFilePath(modelPath, "model path");
    return new TrainingModule(modelPath, null);
  }

  /** Opens a program with a file of external weights. */
  public static TrainingModule load(String modelPath, String dataPath) {
    ExecuTorchRuntime.validateFilePath(modelPath, "model path");
    ExecuTorchRuntime.validateFilePath(dataPath, "data path");
    return new TrainingModule(modelPath, dataPath);
  }

  /** Runs a method, and returns the outputs of the model. The first one is the loss. */
  public EValue[] executeForwardBackward(String methodName, EValue... inputs) {
    Values values = Values.of(inputs);
    lock.lock();
    try {
      long number = handle.number();
      Map<String, Tensor> given = parameters.get(methodName);
      if (given != null) {
        EValue[] tensors = new EValue[given.size()];
        int i = 0;
        for (Tensor tensor : given.values()) {
          tensors[i++] = EValue.from(tensor);
        }
        Values current = Values.of(tensors);
        String[] names = given.keySet().toArray(new String[0]);
        Native.setParameters(number, methodName, names, current.description, current.objects);
      }
      return Values.read(
          Native.executeForwardBackward(
              number, methodName, values.description, values.objects));
    } finally {
      lock.unlock();
    }
  }

  /** The parameters of a method, by their names in the model. */
  public Map<String, Tensor> namedParameters(String methodName) {
    lock.lock();
    try {
      long number = handle.number();
      Map<String, Tensor> given = parameters.get(methodName);
      if (given == null) {
        given = named(Native.namedParameters(number, methodName));
        parameters.put(methodName, given);
      }
      return new LinkedHashMap<>(given);
    } finally {
      lock.unlock();
    }
  }

  /** Copies of the gradients of the last run, by the names of their parameters. */
  public Map<String, Tensor> namedGradients(String methodName) {
    lock.lock();
    try {
      return named(Native.namedGradients(handle.number(), methodName));
    } finally {
      lock.unlock();
    }
  }

  private static Map<String, Tensor> named(Object[] returned) {
    EValue[] values = Values.read(returned);
    Map<String, Tensor> tensors = new LinkedHashMap<>();
    for (int i = 0; i < values.length; i += 2) {
      tensors.put(values[i].toStr(), values[i + 1].toTensor());
    }
    return tensors;
  }

  @Override
  public void close() {
    if (!lock.tryLock()) {
      throw new IllegalStateException("Cannot close module while method is executing");
    }
    try {
      handle.close();
    } finally {
      lock.unlock();
    }
  }
}
