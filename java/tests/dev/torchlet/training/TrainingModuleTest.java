package dev.torchlet.training;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import dev.torchlet.EValue;
import dev.torchlet.ExecutorchRuntimeException;
import dev.torchlet.Tensor;
import dev.torchlet.TestFiles;
import java.nio.FloatBuffer;
import java.util.Collections;
import java.util.Map;
import java.util.Random;
import org.junit.Test;

public class TrainingModuleTest {
  private static final String LAYERS = TestFiles.fixture("training/layers.pte");

  private static EValue[] batch() {
    Random random = new Random(1);
    float[] images = new float[20];
    for (int i = 0; i < images.length; i++) {
      images[i] = (float) random.nextGaussian();
    }
    return new EValue[] {
      EValue.from(Tensor.fromBlob(images, new long[] {4, 5})),
      EValue.from(Tensor.fromBlob(new long[] {0, 1, 2, 1}, new long[] {4}))
    };
  }

  private static float loss(TrainingModule module) {
    return module.executeForwardBackward("forward", batch())[0].toTensor().getDataAsFloatArray()[0];
  }

  @Test
  public void trainingReducesTheLoss() {
    try (TrainingModule module = TrainingModule.load(LAYERS)) {
      SGD optimizer =
          SGD.create(module.namedParameters("forward"), 0.1, 0.9, 0, 1e-4, true);
      float first = loss(module);
      float last = first;
      for (int i = 0; i < 20; i++) {
        optimizer.step(module.namedGradients("forward"));
        last = loss(module);
      }
      assertTrue(first + " to " + last, last < first / 2);
    }
  }

  /** A step without momentum subtracts the gradient times the rate. */
  @Test
  public void stepsAreThoseOfSgd() {
    try (TrainingModule module = TrainingModule.load(LAYERS)) {
      loss(module);
      Map<String, Tensor> parameters = module.namedParameters("forward");
      Map<String, Tensor> gradients = module.namedGradients("forward");
      assertEquals(parameters.keySet(), gradients.keySet());
      String name = parameters.keySet().iterator().next();
      float[] before = parameters.get(name).getDataAsFloatArray();
      float[] gradient = gradients.get(name).getDataAsFloatArray();
      SGD.create(parameters, 0.5).step(gradients);
      float[] after = module.namedParameters("forward").get(name).getDataAsFloatArray();
      for (int i = 0; i < before.length; i++) {
        assertEquals(before[i] - 0.5f * gradient[i], after[i], 1e-6);
      }
    }
  }

  /** The tensors that were handed out are those that the next run uses. */
  @Test
  public void parametersCanBeOverwritten() {
    try (TrainingModule module = TrainingModule.load(LAYERS)) {
      float trained = loss(module);
      Map<String, Tensor> parameters = module.namedParameters("forward");
      float[][] saved = new float[parameters.size()][];
      int index = 0;
      for (Tensor tensor : parameters.values()) {
        saved[index++] = tensor.getDataAsFloatArray();
        FloatBuffer data = (FloatBuffer) tensor.getRawDataBuffer();
        for (int i = 0; i < data.capacity(); i++) {
          data.put(i, 0);
        }
      }
      // The logits of a model of zeros are equal: ln 3 for three classes.
      assertEquals(Math.log(3), loss(module), 1e-5);
      index = 0;
      for (Tensor tensor : parameters.values()) {
        FloatBuffer data = (FloatBuffer) tensor.getRawDataBuffer();
        data.duplicate().put(saved[index++]);
      }
      assertEquals(trained, loss(module), 1e-6);
    }
  }

  @Test
  public void externalWeights() {
    try (TrainingModule module =
        TrainingModule.load(
            TestFiles.fixture("training/layers_external.pte"),
            TestFiles.fixture("training/layers_external.ptd"))) {
      assertTrue(loss(module) > 0);
    }
  }

  @Test
  public void misuse() {
    try (TrainingModule module = TrainingModule.load(LAYERS)) {
      assertThrows(ExecutorchRuntimeException.class, () -> module.namedGradients("forward"));
      assertThrows(ExecutorchRuntimeException.class, () -> module.namedParameters("none"));
      assertThrows(
          ExecutorchRuntimeException.class, () -> module.executeForwardBackward("forward"));
      Map<String, Tensor> parameters = module.namedParameters("forward");
      SGD optimizer = SGD.create(parameters, 0.1);
      String name = parameters.keySet().iterator().next();
      Tensor wrong = Tensor.fromBlob(new float[1], new long[] {1});
      assertThrows(
          IllegalArgumentException.class,
          () -> optimizer.step(Collections.singletonMap(name, wrong)));
      assertThrows(
          IllegalArgumentException.class,
          () -> optimizer.step(Collections.singletonMap("none", wrong)));
      assertThrows(
          IllegalArgumentException.class,
          () ->
              SGD.create(
                  Collections.singletonMap(
                      name, Tensor.fromBlob(new int[1], new long[] {1})),
                  0.1));
      Tensor readOnly =
          Tensor.fromBlob(
              Tensor.allocateFloatBuffer(1).asReadOnlyBuffer(), new long[] {1});
      SGD ofReadOnly = SGD.create(Collections.singletonMap("w", readOnly), 0.1);
      assertThrows(
          ExecutorchRuntimeException.class,
          () -> ofReadOnly.step(Collections.singletonMap("w", wrong)));
    }
    TrainingModule closed = TrainingModule.load(LAYERS);
    closed.close();
    closed.close();
    assertThrows(IllegalStateException.class, () -> closed.namedParameters("forward"));
    assertThrows(
        IllegalStateException.class, () -> closed.executeForwardBackward("forward", batch()));
    // A program for inference.
    try (TrainingModule module = TrainingModule.load(TestFiles.fixture("digits/digits.pte"))) {
      ExecutorchRuntimeException error =
          assertThrows(
              ExecutorchRuntimeException.class, () -> module.namedParameters("forward"));
      assertEquals(ExecutorchRuntimeException.NOT_SUPPORTED, error.getErrorCode());
    }
    assertThrows(IllegalArgumentException.class, () -> TrainingModule.load("/no/such/file"));
  }
}
