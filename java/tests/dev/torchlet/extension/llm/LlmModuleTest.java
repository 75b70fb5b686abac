package dev.torchlet.extension.llm;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import dev.torchlet.ExecutorchRuntimeException;
import dev.torchlet.TestFiles;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

public class LlmModuleTest {
  private static final String MODEL = TestFiles.path("llm/model/fp32.pte");
  private static final String TOKENIZER = TestFiles.path("llm/model/tokenizer.json");
  private static final String PROMPT = "In the beginning";

  private LlmModule model;

  @Before
  public void open() {
    model = new LlmModule(MODEL, TOKENIZER, 0);
  }

  @After
  public void close() {
    model.close();
  }

  /** Collects what a generation reports. */
  private static class Collector implements LlmCallback {
    final List<String> pieces = new ArrayList<>();
    final List<String> stats = new ArrayList<>();
    final List<String> errors = new ArrayList<>();

    @Override
    public void onResult(String result) {
      pieces.add(result);
    }

    @Override
    public void onStats(String stats) {
      this.stats.add(stats);
    }

    @Override
    public void onError(int errorCode, String message) {
      errors.add(errorCode + " " + message);
    }

    String text() {
      return String.join("", pieces);
    }
  }

  private static LlmGenerationConfig tokens(int count) {
    return LlmGenerationConfig.create().echo(false).maxNewTokens(count).temperature(0).build();
  }

  /** The greedy tokens of PyTorch, from {@code llm/model/expected.json}. */
  @Test
  public void textIsThatOfPyTorch() {
    model.load();
    Collector heard = new Collector();
    LlmGenerationConfig config =
        LlmGenerationConfig.create().echo(false).maxNewTokens(10).temperature(0).numBos(1).build();
    model.generate(PROMPT, config, heard);
    assertEquals(", I will be cut off from the p", heard.text());
    assertEquals(1, heard.stats.size());
    assertTrue(heard.stats.get(0), heard.stats.get(0).contains("\"generated_tokens\":10,"));
    assertTrue(heard.errors.isEmpty());
  }

  @Test
  public void lengthsAndEcho() {
    Collector echoed = new Collector();
    model.generate(PROMPT, 20, echoed);
    assertEquals(PROMPT, echoed.pieces.get(0));
    // The context has 20 tokens: those of the prompt, and one for each other piece.
    assertTrue(echoed.stats.get(0), echoed.stats.get(0).contains("\"prompt_tokens\":6,"));
    assertTrue(echoed.stats.get(0), echoed.stats.get(0).contains("\"generated_tokens\":14,"));
    model.resetContext();
    Collector plain = new Collector();
    model.generate(PROMPT, 20, plain, false);
    assertEquals(echoed.text(), PROMPT + plain.text());
  }

  @Test
  public void contextIsKeptUntilReset() {
    Collector first = new Collector();
    model.generate(PROMPT, tokens(8), first);
    Collector whole = new Collector();
    model.resetContext();
    model.generate(PROMPT, tokens(4), whole);
    model.generate("", tokens(4), whole);
    assertEquals(first.text(), whole.text());
    Collector prefilled = new Collector();
    model.resetContext();
    model.prefillPrompt(PROMPT);
    model.generate("", tokens(8), prefilled);
    assertEquals(first.text(), prefilled.text());
  }

  @Test
  public void textBeyondAscii() {
    Collector heard = new Collector();
    String prompt = "你好 🙂 é\0";
    model.generate(
        prompt, LlmGenerationConfig.create().maxNewTokens(1).temperature(0).build(), heard);
    assertEquals(prompt, heard.pieces.get(0));
  }

  @Test
  public void stopFromTheCallback() {
    Collector heard =
        new Collector() {
          @Override
          public void onResult(String result) {
            super.onResult(result);
            model.stop();
          }
        };
    model.generate(PROMPT, tokens(100), heard);
    assertTrue(heard.text(), heard.pieces.size() < 5);
  }

  @Test(timeout = 60_000)
  public void stopFromAnotherThread() throws InterruptedException {
    CountDownLatch begun = new CountDownLatch(5);
    AtomicInteger pieces = new AtomicInteger();
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread other =
        new Thread(
            () -> {
              try {
                model.generate(
                    PROMPT,
                    tokens(500),
                    piece -> {
                      pieces.incrementAndGet();
                      begun.countDown();
                      sleep();
                    });
              } catch (Throwable error) {
                failure.set(error);
              }
            });
    other.start();
    assertTrue(begun.await(30, TimeUnit.SECONDS));
    assertThrows(IllegalStateException.class, model::close);
    model.stop();
    other.join();
    assertNull(failure.get());
    assertTrue("" + pieces, pieces.get() >= 5 && pieces.get() < 500);
  }

  private static void sleep() {
    try {
      Thread.sleep(1);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  @Test
  public void stopWithoutGeneration() {
    // Before the model is loaded, and after.
    model.stop();
    model.load();
    model.stop();
    Collector heard = new Collector();
    model.generate(PROMPT, tokens(8), heard);
    assertTrue(heard.stats.get(0), heard.stats.get(0).contains("\"generated_tokens\":8,"));
  }

  @Test
  public void exceptionsOfCallbacksAreThrown() {
    RuntimeException thrown = new RuntimeException("enough");
    AtomicInteger pieces = new AtomicInteger();
    RuntimeException caught =
        assertThrows(
            RuntimeException.class,
            () ->
                model.generate(
                    PROMPT,
                    tokens(100),
                    piece -> {
                      if (pieces.incrementAndGet() == 3) {
                        throw thrown;
                      }
                    }));
    assertEquals(thrown, caught);
    assertEquals(3, pieces.get());
    // The module is as usable as after a stop.
    model.resetContext();
    Collector heard = new Collector();
    model.generate(PROMPT, tokens(8), heard);
    assertTrue(heard.stats.get(0), heard.stats.get(0).contains("\"generated_tokens\":8,"));
  }

  @Test
  public void callbacksCannotUseTheModule() {
    AtomicReference<String> message = new AtomicReference<>();
    List<Runnable> uses = new ArrayList<>();
    uses.add(() -> model.generate("", tokens(1), piece -> {}));
    uses.add(() -> model.prefillPrompt("text"));
    uses.add(model::resetContext);
    uses.add(model::load);
    uses.add(model::close);
    for (Runnable use : uses) {
      IllegalStateException error =
          assertThrows(
              IllegalStateException.class,
              () -> model.generate(PROMPT, tokens(4), piece -> use.run()));
      message.set(error.getMessage());
      assertTrue(message.get(), message.get().contains("within a callback"));
    }
    model.generate("", tokens(1), piece -> {});
  }

  @Test(timeout = 60_000)
  public void threadsTakeTurns() throws InterruptedException {
    AtomicReference<Throwable> failure = new AtomicReference<>();
    AtomicInteger pieces = new AtomicInteger();
    Thread[] threads = new Thread[4];
    for (int i = 0; i < threads.length; i++) {
      threads[i] =
          new Thread(
              () -> {
                try {
                  model.generate(PROMPT, tokens(8), piece -> pieces.incrementAndGet());
                } catch (Throwable error) {
                  failure.set(error);
                }
              });
      threads[i].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertNull(failure.get());
    assertTrue("" + pieces, pieces.get() >= 16);
  }

  @Test
  public void closedModules() {
    model.generate(PROMPT, tokens(1), piece -> {});
    model.close();
    model.close();
    model.resetNative();
    model.stop();
    assertThrows(
        IllegalStateException.class, () -> model.generate(PROMPT, tokens(1), piece -> {}));
    assertThrows(IllegalStateException.class, model::load);
    assertThrows(IllegalStateException.class, model::resetContext);
    assertThrows(IllegalStateException.class, () -> model.prefillPrompt(PROMPT));
  }

  @Test
  public void filesThatAreNoModels() throws IOException {
    assertThrows(
        IllegalArgumentException.class, () -> new LlmModule("/no/such/file", TOKENIZER, 0));
    assertThrows(IllegalArgumentException.class, () -> new LlmModule(MODEL, null, 0));
    String text = TestFiles.noProgram();
    try (LlmModule broken = new LlmModule(text, TOKENIZER, 0)) {
      Collector heard = new Collector();
      assertThrows(ExecutorchRuntimeException.class, broken::load);
      ExecutorchRuntimeException error =
          assertThrows(
              ExecutorchRuntimeException.class,
              () -> broken.generate(PROMPT, tokens(1), heard));
      assertEquals(ExecutorchRuntimeException.INVALID_PROGRAM, error.getErrorCode());
      assertEquals(1, heard.errors.size());
    }
    try (LlmModule broken = new LlmModule(MODEL, text, 0)) {
      assertThrows(ExecutorchRuntimeException.class, broken::load);
    }
    try (LlmModule broken = new LlmModule(TestFiles.fixture("digits/digits.pte"), TOKENIZER, 0)) {
      assertThrows(ExecutorchRuntimeException.class, broken::load);
    }
  }

  @Test
  public void inputsThatDoNotFit() {
    ExecutorchRuntimeException error =
        assertThrows(
            ExecutorchRuntimeException.class, () -> model.prefillImages(new int[12], 2, 2, 3));
    assertTrue(error.getMessage(), error.getMessage().contains("does not accept images"));
    assertThrows(
        ExecutorchRuntimeException.class, () -> model.prefillAudio(new float[12], 1, 3, 4));
    assertThrows(
        ExecutorchRuntimeException.class,
        () -> model.prefillImages(ByteBuffer.allocateDirect(12), 2, 2, 3));
    assertThrows(
        ExecutorchRuntimeException.class,
        () ->
            model.prefillNormalizedImage(
                ByteBuffer.allocateDirect(48).order(ByteOrder.nativeOrder()), 2, 2, 3));
    List<Runnable> calls = new ArrayList<>();
    ByteBuffer direct = ByteBuffer.allocateDirect(12);
    ByteBuffer floats = ByteBuffer.allocateDirect(49).order(ByteOrder.nativeOrder());
    calls.add(() -> model.prefillImages(ByteBuffer.allocate(12), 2, 2, 3));
    calls.add(() -> model.prefillImages((ByteBuffer) null, 2, 2, 3));
    calls.add(() -> model.prefillImages(direct, 2, 3, 3));
    calls.add(() -> model.prefillImages(direct, 0, 2, 3));
    calls.add(() -> model.prefillImages(direct, 2, -2, 3));
    calls.add(() -> model.prefillImages(direct, 2, 2, 0));
    calls.add(() -> model.prefillImages(direct, 1 << 16, 1 << 16, 1 << 16));
    calls.add(() -> model.prefillImages(new int[11], 2, 2, 3));
    calls.add(() -> model.prefillImages((float[]) null, 2, 2, 3));
    calls.add(() -> model.prefillNormalizedImage(direct, 2, 2, 3));
    calls.add(() -> model.prefillNormalizedImage(floats, 2, 2, 4));
    calls.add(() -> model.prefillNormalizedImage(skipped(floats, 1), 2, 2, 3));
    calls.add(
        () -> model.prefillNormalizedImage(floats.duplicate().order(foreignOrder()), 2, 2, 3));
    calls.add(() -> model.prefillAudio(new byte[11], 1, 3, 4));
    calls.add(() -> model.generate(null, tokens(1), piece -> {}));
    calls.add(() -> model.generate(PROMPT, tokens(1), null));
    for (int i = 0; i < calls.size(); i++) {
      Runnable call = calls.get(i);
      assertThrows("call " + i, IllegalArgumentException.class, call::run);
    }
    assertThrows(
        "no context of 100 times the prompt",
        ExecutorchRuntimeException.class,
        () -> model.prefillPrompt(new String(new char[100]).replace("\0", PROMPT)));
  }

  private static ByteBuffer skipped(ByteBuffer buffer, int bytes) {
    ByteBuffer skipped = buffer.duplicate().order(buffer.order());
    skipped.position(bytes);
    return skipped;
  }

  private static ByteOrder foreignOrder() {
    return ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN
        ? ByteOrder.LITTLE_ENDIAN
        : ByteOrder.BIG_ENDIAN;
  }

  @Test
  public void multimodalModelsNeedAnEncoder() {
    LlmModuleConfig config =
        LlmModuleConfig.create()
            .modulePath(MODEL)
            .tokenizerPath(TOKENIZER)
            .modelType(LlmModuleConfig.MODEL_TYPE_MULTIMODAL)
            .build();
    try (LlmModule multimodal = new LlmModule(config)) {
      assertThrows(ExecutorchRuntimeException.class, multimodal::load);
    }
  }

  @Test
  public void configurations() {
    LlmModuleConfig config =
        LlmModuleConfig.create().modulePath(MODEL).tokenizerPath(TOKENIZER).build();
    assertEquals(MODEL, config.getModulePath());
    assertEquals(TOKENIZER, config.getTokenizerPath());
    assertEquals(0.8f, config.getTemperature(), 0);
    assertEquals(LlmModuleConfig.MODEL_TYPE_TEXT, config.getModelType());
    assertEquals(LlmModuleConfig.LOAD_MODE_MMAP, config.getLoadMode());
    assertNull(config.getDataPath());
    assertThrows(
        IllegalArgumentException.class, () -> LlmModuleConfig.create().modulePath(MODEL).build());
    assertThrows(
        IllegalArgumentException.class, () -> LlmModuleConfig.create().loadMode(4));
    assertThrows(
        IllegalArgumentException.class, () -> LlmModuleConfig.create().modelType(3));
    LlmGenerationConfig generation = LlmGenerationConfig.create().build();
    assertTrue(generation.isEcho());
    assertEquals(-1, generation.getMaxNewTokens());
    assertEquals(-1, generation.getSeqLen());
    assertEquals(0.8f, generation.getTemperature(), 0);
  }

  @Test
  public void otherLoadModesAndProcessors() {
    String[] processors = {"cpu", "as-exported", "auto", "cpu"};
    Collector expected = new Collector();
    model.generate(PROMPT, tokens(8), expected);
    for (int mode = LlmModuleConfig.LOAD_MODE_FILE; mode < processors.length; mode++) {
      LlmModuleConfig config =
          LlmModuleConfig.create()
              .modulePath(MODEL)
              .tokenizerPath(TOKENIZER)
              .loadMode(mode)
              .threads(1)
              .runOn(processors[mode])
              .build();
      try (LlmModule other = new LlmModule(config)) {
        Collector heard = new Collector();
        other.generate(PROMPT, tokens(8), heard);
        assertEquals(expected.text(), heard.text());
      }
    }
  }
}
