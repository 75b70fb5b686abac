package dev.torchlet;

import static dev.torchlet.TestFiles.DIGITS;
import static dev.torchlet.TestFiles.DIGITS_SHAPE;
import static dev.torchlet.TestFiles.seven;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import dev.torchlet.internal.Native;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.IOException;
import org.junit.Assume;
import org.junit.Test;

/** Native memory is freed. */
public class MemoryTest {
  /** Memory of the process that is not shared with others, in kilobytes. */
  private static long privateKilobytes() throws IOException {
    try (BufferedReader status = new BufferedReader(new FileReader("/proc/self/status"))) {
      String line;
      while ((line = status.readLine()) != null) {
        if (line.startsWith("RssAnon:")) {
          return Long.parseLong(line.replaceAll("[^0-9]", ""));
        }
      }
    }
    throw new IOException("/proc/self/status has no RssAnon");
  }

  private static void loadAndRun(int times, Tensor image) {
    for (int i = 0; i < times; i++) {
      try (Module module = Module.builder().runOn("as-exported").load(DIGITS)) {
        module.forward(EValue.from(image));
        // The error path allocates, too.
        assertThrows(RuntimeException.class, () -> module.loadMethod("none"));
      }
    }
  }

  @Test
  public void tenThousandLoadsLeakNothing() throws IOException {
    Assume.assumeTrue(System.getProperty("os.name").equals("Linux"));
    Tensor image = Tensor.fromBlob(seven(), DIGITS_SHAPE);
    long open = Native.openModules();
    loadAndRun(2000, image);
    System.gc();
    long before = privateKilobytes();
    loadAndRun(10000, image);
    System.gc();
    long grown = privateKilobytes() - before;
    assertEquals(open, Native.openModules());
    // A module has 20 KB: if each leaked, it would be 200 MB.
    assertTrue("grown by " + grown + " KB", grown < 20_000);
  }

  @Test
  public void modulesThatNobodyUsesAreFreed() throws InterruptedException {
    long open = Native.openModules();
    for (int i = 0; i < 100; i++) {
      Module.load(DIGITS);
    }
    for (int i = 0; i < 100 && Native.openModules() > open; i++) {
      System.gc();
      Thread.sleep(20);
    }
    assertTrue("open: " + Native.openModules(), Native.openModules() <= open);
  }
}
