package dev.torchlet;

import static org.junit.Assert.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;

/** Programs of the repository, and their inputs. */
public final class TestFiles {
  static final String DIGITS = fixture("digits/digits.pte");
  static final long[] DIGITS_SHAPE = {1, 1, 8, 8};

  private TestFiles() {}

  /** Path of a file in the repository. */
  public static String path(String name) {
    return new File(System.getProperty("dev.torchlet.tests"), name).getPath();
  }

  public static String fixture(String name) {
    return path("tests/fixtures/" + name);
  }

  /** A file of text that is no program. */
  public static String noProgram() throws IOException {
    File file = File.createTempFile("torchlet", ".pte");
    file.deleteOnExit();
    Files.write(file.toPath(), "This is no program.".getBytes(StandardCharsets.UTF_8));
    return file.getPath();
  }

  /** A drawing of a seven, which the program of digits recognizes. */
  static float[] seven() {
    String drawing =
        "        "
            + "  ####  "
            + "     #  "
            + "    #   "
            + "   ###  "
            + "   #    "
            + "   #    "
            + "   #    ";
    float[] pixels = new float[64];
    for (int i = 0; i < pixels.length; i++) {
      pixels[i] = drawing.charAt(i) == '#' ? 1 : 0;
    }
    return pixels;
  }

  static int argmax(float[] values) {
    int best = 0;
    for (int i = 1; i < values.length; i++) {
      best = values[i] > values[best] ? i : best;
    }
    return best;
  }

  static void assertSeven(EValue[] outputs) {
    assertEquals(1, outputs.length);
    float[] scores = outputs[0].toTensor().getDataAsFloatArray();
    assertEquals(10, scores.length);
    assertEquals(7, argmax(scores));
  }
}
