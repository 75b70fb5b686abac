package dev.torchlet;

import static dev.torchlet.TestFiles.DIGITS;
import static dev.torchlet.TestFiles.DIGITS_SHAPE;
import static dev.torchlet.TestFiles.assertSeven;
import static dev.torchlet.TestFiles.fixture;
import static dev.torchlet.TestFiles.seven;
import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import org.junit.Test;

public class ModuleTest {
  private static EValue image() {
    return EValue.from(Tensor.fromBlob(seven(), DIGITS_SHAPE));
  }

  private static EValue floats(long[] shape, float... values) {
    return EValue.from(Tensor.fromBlob(values, shape));
  }

  @Test
  public void loadAndForward() {
    try (Module module = Module.load(DIGITS)) {
      assertSeven(module.forward(image()));
      module.loadMethod("forward");
      assertSeven(module.execute("forward", image()));
    }
  }

  @Test
  public void everyLoadModeAndProcessor() {
    for (int mode = Module.LOAD_MODE_FILE; mode <= Module.LOAD_MODE_MMAP_USE_MLOCK; mode++) {
      try (Module module = Module.load(DIGITS, mode)) {
        assertSeven(module.forward(image()));
      }
    }
    int ifAllowed = Module.LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS;
    try (Module module = Module.load(DIGITS, ifAllowed, 2)) {
      assertSeven(module.forward(image()));
    }
    for (String processor : new String[] {"cpu", "as-exported", "auto"}) {
      assertTrue(Arrays.asList(ExecuTorchRuntime.getProcessors()).contains(processor));
      try (Module module = Module.builder().runOn(processor).load(DIGITS)) {
        assertSeven(module.forward(image()));
      }
    }
    assertThrows(
        IllegalArgumentException.class, () -> Module.builder().runOn("abacus").load(DIGITS));
    assertThrows(IllegalArgumentException.class, () -> Module.builder().loadMode(4));
    assertThrows(IllegalArgumentException.class, () -> Module.builder().threads(-1));
    assertThrows(IllegalArgumentException.class, () -> Module.builder().runOn(null));
  }

  @Test
  public void directBuffersAreReadAtEachCall() {
    FloatBuffer pixels = Tensor.allocateFloatBuffer(64);
    Tensor tensor = Tensor.fromBlob(pixels, DIGITS_SHAPE);
    try (Module module = Module.load(DIGITS)) {
      EValue[] before = module.forward(EValue.from(tensor));
      float[] blank = before[0].toTensor().getDataAsFloatArray();
      pixels.put(seven());
      assertSeven(module.forward(EValue.from(tensor)));
      // Outputs have memory of their own.
      assertArrayEquals(blank, before[0].toTensor().getDataAsFloatArray(), 0);
      // A read-only view of a direct buffer is direct, too.
      assertSeven(
          module.forward(
              EValue.from(Tensor.fromBlob(pixels.asReadOnlyBuffer(), DIGITS_SHAPE))));
    }
  }

  @Test
  public void programsInMemoryAndInPartsOfFiles() throws IOException {
    byte[] program = Files.readAllBytes(Paths.get(DIGITS));
    try (Module module = Module.builder().load(program)) {
      assertSeven(module.forward(image()));
    }
    ByteBuffer direct = ByteBuffer.allocateDirect(program.length + 3);
    direct.position(3);
    direct.put(program);
    direct.position(3);
    try (Module module = Module.builder().load(direct)) {
      // The module has a copy.
      direct.clear();
      direct.put(new byte[program.length]);
      assertSeven(module.forward(image()));
    }
    File file = File.createTempFile("torchlet", ".apk");
    file.deleteOnExit();
    try (RandomAccessFile archive = new RandomAccessFile(file, "rw")) {
      archive.seek(12345);
      archive.write(program);
      archive.write(new byte[100]);
    }
    try (FileInputStream stream = new FileInputStream(file)) {
      try (Module module = Module.builder().load(stream.getFD(), 12345, program.length)) {
        assertSeven(module.forward(image()));
      }
      assertThrows(
          IllegalArgumentException.class,
          () -> Module.builder().load(stream.getFD(), 12345, program.length + 101));
      assertTrue("the descriptor is still open", stream.getChannel().isOpen());
    }
    assertThrows(
        IllegalArgumentException.class, () -> Module.builder().load(ByteBuffer.wrap(program)));
    assertThrows(IllegalArgumentException.class, () -> Module.builder().load((byte[]) null));
  }

  @Test
  public void externalWeights() {
    try (Module module =
        Module.builder()
            .data(fixture("digits/digits_external._default_external_constant.ptd"))
            .load(fixture("digits/digits_external.pte"))) {
      assertSeven(module.forward(image()));
    }
  }

  @Test
  public void programsOfTorchExport() {
    try (Module module = Module.load(fixture("pt2/counter.pt2"))) {
      EValue[] outputs = module.forward(EValue.from(Tensor.ones(new long[] {4, 3}, DType.FLOAT)));
      assertArrayEquals(new long[] {3}, outputs[0].toTensor().shape());
    }
  }

  @Test
  public void everyKindOfValue() {
    try (Module module = Module.load(fixture("programs/many_inputs.bpte"))) {
      MethodMetadata forward = module.getMethodMetadata("forward");
      String[] kinds = new String[5];
      for (int i = 0; i < kinds.length; i++) {
        kinds[i] = forward.getInputs()[i].getKind();
      }
      assertArrayEquals(new String[] {"Tensor", "Int", "Bool", "Double", "None"}, kinds);
      EValue[] inputs = {
        EValue.from(Tensor.ones(new long[] {2, 5}, DType.FLOAT)),
        EValue.from(3L),
        EValue.from(true),
        EValue.from(0.5),
        EValue.optionalNone()
      };
      EValue[] outputs = module.forward(inputs);
      assertEquals(8, outputs.length);
      assertTrue(outputs[2].isInt() && outputs[3].isBool() && outputs[4].isDouble());
      assertTrue(outputs[5].isNone());
      assertEquals(DType.BOOL, outputs[6].toTensor().dtype());
      assertEquals(10, outputs[6].toTensor().getDataAsBooleanArray().length);
      // A number of another kind is refused, a missing one, too.
      EValue[] wrong = inputs.clone();
      wrong[1] = EValue.from("3");
      assertThrows(ExecutorchRuntimeException.class, () -> module.forward(wrong));
      assertThrows(ExecutorchRuntimeException.class, () -> module.forward(inputs[0]));
    }
  }

  @Test
  public void stringOutputs() {
    try (Module module = Module.load(fixture("programs/training.pte"))) {
      EValue[] names = module.execute("__et_training_fqn_forward");
      assertEquals(4, names.length);
      for (EValue name : names) {
        assertTrue(name.toStr(), name.toStr().endsWith("weight") || name.toStr().endsWith("bias"));
      }
    }
  }

  @Test
  public void everyElementType() {
    long[] shape = {2, 3};
    Tensor[] inputs = {
      Tensor.fromBlob(new float[6], shape),
      Tensor.fromBlob(new double[6], shape),
      Tensor.fromBlob(new short[6], shape),
      Tensor.fromBlob(new int[6], shape),
      Tensor.fromBlob(new long[3], new long[] {3}),
      Tensor.fromBlob(new boolean[2], new long[] {2}),
      Tensor.fromBlobUnsigned(new byte[3], new long[] {3}),
    };
    EValue[] values = new EValue[inputs.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = EValue.from(inputs[i]);
    }
    try (Module module = Module.load(fixture("programs/many_dtypes.bpte"))) {
      EValue[] outputs = module.forward(values);
      for (int i = 0; i < inputs.length; i++) {
        assertEquals(inputs[i].dtype(), outputs[i].toTensor().dtype());
        assertArrayEquals(inputs[i].shape(), outputs[i].toTensor().shape());
      }
      // Each type in the place of the first: refused, with what was expected and found.
      for (int i = 1; i < inputs.length; i++) {
        EValue[] wrong = values.clone();
        wrong[0] = values[i];
        ExecutorchRuntimeException error =
            assertThrows(ExecutorchRuntimeException.class, () -> module.forward(wrong));
        assertTrue(error.getMessage(), error.getMessage().contains("float32"));
        assertTrue(
            error.getMessage(), error.getMessage().contains(inputs[i].dtype().torchName()));
      }
    }
  }

  @Test
  public void halfAndBfloat16() {
    short[] half = new short[64];
    ByteBuffer bfloat16 = Tensor.allocateByteBuffer(128);
    float[] pixels = seven();
    for (int i = 0; i < pixels.length; i++) {
      half[i] = (short) (pixels[i] == 1 ? 0x3c00 : 0);
      bfloat16.putShort((short) (pixels[i] == 1 ? 0x3f80 : 0));
    }
    try (Module module = Module.load(fixture("digits/digits_half.bpte"))) {
      EValue[] outputs = module.forward(EValue.from(Tensor.fromBlob(half, DIGITS_SHAPE)));
      assertEquals(DType.HALF, outputs[0].toTensor().dtype());
      assertSeven(outputs);
    }
    try (Module module = Module.load(fixture("digits/digits_bf16.bpte"))) {
      Tensor input = Tensor.fromBytes(bfloat16, DIGITS_SHAPE, DType.BFLOAT16);
      assertSeven(module.forward(EValue.from(input)));
    }
  }

  @Test
  public void otherMemoryOrdersAreConverted() {
    for (String name : new String[] {"channels_last", "odd_dim_order", "unplanned_io", "int8"}) {
      try (Module module = Module.load(fixture("digits/digits_" + name + ".bpte"))) {
        assertSeven(module.forward(image()));
      }
    }
  }

  @Test
  public void dynamicShapes() {
    try (Module module = Module.load(fixture("digits/digits_dynamic_batch.bpte"))) {
      ValueMetadata input = module.getMethodMetadata("forward").getInputs()[0];
      assertTrue(input.isDynamic());
      assertArrayEquals(new long[] {16, 1, 8, 8}, input.getShape());
      for (int batch : new int[] {1, 16, 3}) {
        float[] pixels = new float[64 * batch];
        System.arraycopy(seven(), 0, pixels, 64 * (batch - 1), 64);
        Tensor images = Tensor.fromBlob(pixels, new long[] {batch, 1, 8, 8});
        Tensor scores = module.forward(EValue.from(images))[0].toTensor();
        assertArrayEquals(new long[] {batch, 10}, scores.shape());
        float[] all = scores.getDataAsFloatArray();
        float[] last = Arrays.copyOfRange(all, all.length - 10, all.length);
        assertEquals(7, TestFiles.argmax(last));
      }
      Tensor tooLarge = Tensor.zeros(new long[] {17, 1, 8, 8}, DType.FLOAT);
      assertThrows(
          ExecutorchRuntimeException.class, () -> module.forward(EValue.from(tooLarge)));
    }
  }

  @Test
  public void emptyTensors() {
    try (Module module = Module.load(fixture("programs/empty.bpte"))) {
      Tensor none = Tensor.zeros(new long[] {0, 3}, DType.FLOAT);
      EValue[] outputs = module.forward(EValue.from(none));
      assertEquals(0, outputs[0].toTensor().numel());
      assertEquals(1, outputs[1].toTensor().numel());
    }
  }

  @Test
  public void methodsAndMetadata() {
    try (Module module = Module.load(fixture("programs/two_methods.pte"))) {
      assertArrayEquals(new String[] {"encode", "forward"}, module.getMethods());
      MethodMetadata encode = module.getMethodMetadata("encode");
      assertEquals("encode", encode.getName());
      assertEquals("float32[1, 4]", encode.getInputs()[0].toString());
      assertArrayEquals(new long[] {1, 2}, encode.getOutputs()[0].getShape());
      assertThrows(IllegalArgumentException.class, () -> module.getMethodMetadata("decode"));
      long[] row = {1, 4};
      EValue[] encoded = module.execute("encode", floats(row, 1, 2, 3, 4));
      assertArrayEquals(new long[] {1, 2}, encoded[0].toTensor().shape());
    }
    try (Module module =
        Module.builder().runOn("as-exported").load(fixture("models/mobilenet_v2.pte"))) {
      assertArrayEquals(new String[0], module.getMethodMetadata("forward").getBackends());
    }
  }

  @Test
  public void planAndMemoryNeeds() {
    try (Module module = Module.builder().runOn("cpu").load(DIGITS)) {
      assertTrue(module.plan(), module.plan().contains("TorchletCpu"));
      MemoryNeeds needs = module.memoryNeeds("forward");
      assertTrue(needs.toString(), needs.getArena() > 0 && needs.getTotal() >= needs.getArena());
    }
    ExecutorchRuntimeException error;
    try (Module module = Module.builder().memoryLimit(100).load(DIGITS)) {
      error =
          assertThrows(ExecutorchRuntimeException.class, () -> module.loadMethod("forward"));
    }
    assertEquals(ExecutorchRuntimeException.MEMORY_ALLOCATION_FAILED, error.getErrorCode());
  }

  @Test
  public void stateIsKeptUntilReset() {
    try (Module module = Module.load(fixture("programs/state_from_zero.bpte"))) {
      EValue input = EValue.from(Tensor.ones(new long[] {2, 3}, DType.FLOAT));
      long first = module.forward(input)[1].toTensor().getDataAsLongArray()[0];
      long second = module.forward(input)[1].toTensor().getDataAsLongArray()[0];
      assertEquals(first + 1, second);
      module.reset("forward");
      assertEquals(first, module.forward(input)[1].toTensor().getDataAsLongArray()[0]);
    }
  }

  @Test
  public void eventsAreRecorded() throws IOException {
    File file = File.createTempFile("torchlet", ".etdump");
    file.deleteOnExit();
    try (Module module = Module.builder().recordEvents().load(DIGITS)) {
      module.forward(image());
      assertTrue(module.etdump(file.getPath()));
      byte[] dump = Files.readAllBytes(file.toPath());
      assertEquals("ED00", new String(dump, 8, 4, "US-ASCII"));
      assertTrue(module.etdump());
      assertFalse("no such folder", module.etdump("/no/such/folder/result.etdump"));
    }
    try (Module module = Module.load(DIGITS)) {
      assertFalse("nothing is recorded", module.etdump(file.getPath()));
    }
  }

  @Test
  public void compiledProgramsAreCached() throws IOException {
    File folder = Files.createTempDirectory("torchlet-cache").toFile();
    for (String expected : new String[] {"compiled", "cache"}) {
      try (Module module =
          Module.builder().runOn("cpu").compileCache(folder.getPath()).load(DIGITS)) {
        assertTrue(module.plan(), module.plan().contains(expected));
        assertSeven(module.forward(image()));
      }
    }
    File[] files = folder.listFiles();
    assertTrue(files != null && files.length > 0);
    for (File file : files) {
      assertTrue(file.delete());
    }
    assertTrue(folder.delete());
  }

  @Test
  public void runtimeAndLog() {
    assertTrue(
        Arrays.asList(ExecuTorchRuntime.getRegisteredOps()).contains("aten::add.out"));
    assertTrue(
        Arrays.asList(ExecuTorchRuntime.getRegisteredBackends()).contains("XnnpackBackend"));
    assertFalse(ExecuTorchRuntime.version().isEmpty());
    try (Module module = Module.load(DIGITS)) {
      String[] lines = module.readLogBuffer();
      assertTrue(lines[lines.length - 1], lines[lines.length - 1].contains("opened a program"));
      assertThrows(ExecutorchRuntimeException.class, () -> module.loadMethod("none"));
    }
    String[] lines = Module.readLogBufferStatic();
    assertTrue(lines[lines.length - 1], lines[lines.length - 1].contains("none"));
  }
}
