package dev.torchlet;

import static dev.torchlet.TestFiles.DIGITS;
import static dev.torchlet.TestFiles.DIGITS_SHAPE;
import static dev.torchlet.TestFiles.assertSeven;
import static dev.torchlet.TestFiles.fixture;
import static dev.torchlet.TestFiles.seven;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import dev.torchlet.internal.Native;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.Test;

/** What goes wrong is an exception that says what was expected and found. */
public class ModuleErrorsTest {
  private static EValue image() {
    return EValue.from(Tensor.fromBlob(seven(), DIGITS_SHAPE));
  }

  private static void assertMessage(Throwable error, String... parts) {
    for (String part : parts) {
      assertTrue(error.getMessage() + " lacks " + part, error.getMessage().contains(part));
    }
  }

  @Test
  public void filesThatAreNoPrograms() throws IOException {
    assertMessage(
        assertThrows(IllegalArgumentException.class, () -> Module.load("/no/such/file.pte")),
        "/no/such/file.pte",
        "does not exist");
    assertThrows(IllegalArgumentException.class, () -> Module.load(null));
    assertThrows(IllegalArgumentException.class, () -> Module.load("/tmp"));
    String text = TestFiles.noProgram();
    ExecutorchRuntimeException error =
        assertThrows(ExecutorchRuntimeException.class, () -> Module.load(text));
    assertEquals(ExecutorchRuntimeException.INVALID_PROGRAM, error.getErrorCode());
    assertMessage(error, text);
    assertThrows(ExecutorchRuntimeException.class, () -> Module.builder().load(new byte[0]));
  }

  @Test
  public void damagedProgramsNeverEndTheProcess() throws IOException {
    byte[] program = Files.readAllBytes(Paths.get(DIGITS));
    Random random = new Random(1);
    int refused = 0;
    for (int i = 0; i < 300; i++) {
      byte[] damaged = program.clone();
      for (int j = 0; j < 4; j++) {
        damaged[random.nextInt(1024)] = (byte) random.nextInt();
      }
      try (Module module = Module.builder().memoryLimit(1 << 24).load(damaged)) {
        module.forward(image());
      } catch (ExecutorchRuntimeException error) {
        refused++;
      }
    }
    assertTrue("refused " + refused, refused > 100);
  }

  @Test
  public void inputsThatDoNotFit() {
    try (Module module = Module.load(DIGITS)) {
      Tensor small = Tensor.zeros(new long[] {1, 1, 8, 7}, DType.FLOAT);
      assertMessage(
          assertThrows(
              ExecutorchRuntimeException.class, () -> module.forward(EValue.from(small))),
          "input 0 of 'forward'",
          "expected shape [1, 1, 8, 8]",
          "found [1, 1, 8, 7]");
      Tensor ints = Tensor.zeros(DIGITS_SHAPE, DType.INT32);
      assertMessage(
          assertThrows(
              ExecutorchRuntimeException.class, () -> module.forward(EValue.from(ints))),
          "float32",
          "int32");
      assertMessage(
          assertThrows(
              ExecutorchRuntimeException.class, () -> module.forward(EValue.from("seven"))),
          "tensor",
          "string");
      assertMessage(
          assertThrows(
              ExecutorchRuntimeException.ExecutorchInvalidArgumentException.class,
              () -> module.forward()),
          "expects 1 input",
          "found 0");
      assertMessage(
          assertThrows(
              ExecutorchRuntimeException.class, () -> module.forward(image(), image())),
          "expects 1 input",
          "found 2");
      assertThrows(IllegalArgumentException.class, () -> module.forward((EValue) null));
      assertThrows(IllegalArgumentException.class, () -> module.forward((EValue[]) null));
      assertThrows(IllegalArgumentException.class, () -> module.execute(null, image()));
      // A failed call leaves the module usable.
      assertSeven(module.forward(image()));
    }
  }

  @Test
  public void methodsThatDoNotExist() {
    try (Module module = Module.load(fixture("programs/two_methods.pte"))) {
      ExecutorchRuntimeException error =
          assertThrows(ExecutorchRuntimeException.class, () -> module.loadMethod("none"));
      assertEquals(ExecutorchRuntimeException.INVALID_ARGUMENT, error.getErrorCode());
      assertMessage(error, "'none'", "encode", "forward");
      assertThrows(ExecutorchRuntimeException.class, () -> module.execute("none"));
      assertThrows(ExecutorchRuntimeException.class, () -> module.memoryNeeds("none"));
      assertThrows(ExecutorchRuntimeException.class, () -> module.reset("none"));
    }
  }

  @Test
  public void closedModules() {
    Module module = Module.load(DIGITS);
    module.loadMethod("forward");
    module.destroy();
    module.destroy();
    module.close();
    assertMessage(
        assertThrows(IllegalStateException.class, () -> module.forward(image())),
        "Module has been destroyed");
    assertThrows(IllegalStateException.class, () -> module.loadMethod("forward"));
    assertThrows(IllegalStateException.class, module::getMethods);
    assertThrows(IllegalStateException.class, () -> module.getMethodMetadata("forward"));
    assertThrows(IllegalStateException.class, module::readLogBuffer);
    assertThrows(IllegalStateException.class, () -> module.etdump());
    assertThrows(IllegalStateException.class, module::plan);
    assertThrows(IllegalStateException.class, module::cancel);
    assertThrows(IllegalStateException.class, () -> module.memoryNeeds("forward"));
  }

  /** Java's checks aside, native methods refuse numbers and descriptions that make no sense. */
  @Test
  public void nativeMethodsTrustNobody() {
    assertThrows(IllegalStateException.class, () -> Native.methodNames(0));
    assertThrows(IllegalStateException.class, () -> Native.methodNames(-1));
    assertThrows(IllegalStateException.class, () -> Native.methodNames(Long.MAX_VALUE));
    Native.closeModule(12345678);
    assertThrows(
        IllegalArgumentException.class, () -> Native.openModule(null, null, new String[0]));
    assertThrows(IllegalArgumentException.class, () -> Native.openModule(DIGITS, null, null));
    assertThrows(
        IllegalArgumentException.class,
        () -> Native.openModule(DIGITS, null, new String[] {"unknown", "1"}));
    String[] none = new String[0];
    assertThrows(
        ExecutorchRuntimeException.class, () -> Native.openModule(null, "a string", none));
    assertThrows(
        ExecutorchRuntimeException.class,
        () -> Native.openModule(null, ByteBuffer.allocate(8), none));
    long module = Native.openModule(DIGITS, null, none);
    long[][] descriptions = {
      {}, {1}, {1, 6}, {1, 6, 4, 1, 1, 8}, {1, 99, 0}, {1, 6, -1}, {1, 6, 1000}, {77},
      {1, 6, 1, -5}, {1, 6, 2, Long.MAX_VALUE, Long.MAX_VALUE}
    };
    FloatBuffer pixels = Tensor.allocateFloatBuffer(64);
    for (long[] description : descriptions) {
      assertThrows(
          RuntimeException.class,
          () -> Native.execute(module, "forward", description, new Object[] {pixels}));
    }
    long[] sound = {1, 6, 4, 1, 1, 8, 8};
    Native.execute(module, "forward", sound, new Object[] {pixels});
    // A buffer of bytes with as many bytes as elements would be read beyond its end.
    Object[] buffers = {
      null,
      "pixels",
      ByteBuffer.allocateDirect(64),
      ByteBuffer.allocate(256),
      FloatBuffer.allocate(64),
      ByteBuffer.allocateDirect(512).order(ByteOrder.nativeOrder()).asLongBuffer()
    };
    for (Object buffer : buffers) {
      assertThrows(
          ExecutorchRuntimeException.class,
          () -> Native.execute(module, "forward", sound, new Object[] {buffer}));
    }
    Native.closeModule(module);
  }

  @Test
  public void manyThreadsShareAModule() throws InterruptedException {
    Module module = Module.load(DIGITS);
    int count = 100;
    CountDownLatch start = new CountDownLatch(count);
    AtomicInteger completed = new AtomicInteger();
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread[] threads = new Thread[count];
    for (int i = 0; i < count; i++) {
      threads[i] =
          new Thread(
              () -> {
                try {
                  start.countDown();
                  start.await();
                  assertSeven(module.forward(image()));
                  completed.incrementAndGet();
                } catch (Throwable error) {
                  failure.set(error);
                }
              });
      threads[i].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertEquals(String.valueOf(failure.get()), count, completed.get());
    module.destroy();
  }

  @Test
  public void destroyingDuringCalls() throws InterruptedException {
    for (int round = 0; round < 50; round++) {
      Module module = Module.load(DIGITS);
      Thread other =
          new Thread(
              () -> {
                try {
                  for (int i = 0; i < 1000; i++) {
                    module.forward(image());
                  }
                } catch (IllegalStateException error) {
                  // It was destroyed.
                }
              });
      other.start();
      boolean isDestroyed = false;
      while (!isDestroyed) {
        try {
          module.destroy();
          isDestroyed = true;
        } catch (IllegalStateException error) {
          assertMessage(error, "Cannot destroy module while method is executing");
          Thread.yield();
        }
      }
      other.join();
    }
  }

  @Test
  public void cancelledModules() {
    try (Module module = Module.load(DIGITS)) {
      module.cancel();
      assertThrows(ExecutorchRuntimeException.class, () -> module.forward(image()));
      module.resume();
      assertSeven(module.forward(image()));
    }
  }

  /** Threads of Java have stacks of 1 MB or less. */
  @Test
  public void smallStacks() throws InterruptedException {
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread thread =
        new Thread(
            null,
            () -> {
              try (Module module = Module.load(fixture("models/vit.bpte"))) {
                module.loadMethod("forward");
              } catch (Throwable error) {
                failure.set(error);
              }
            },
            "small",
            512 << 10);
    thread.start();
    thread.join();
    assertEquals(null, failure.get());
  }
}
