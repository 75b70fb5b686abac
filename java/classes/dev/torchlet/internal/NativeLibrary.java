package dev.torchlet.internal;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/** Loads the native library. */
final class NativeLibrary {
  private static final String NAME = "torchlet_java";

  /** System property with the path of a library that is used instead of the jar's. */
  private static final String PATH_PROPERTY = "dev.torchlet.library";

  private NativeLibrary() {}

  static void load() {
    String path = System.getProperty(PATH_PROPERTY);
    if (path != null) {
      System.load(new File(path).getAbsolutePath());
    } else if ("Dalvik".equals(System.getProperty("java.vm.name"))) {
      // Android's installer extracts the library from the package.
      System.loadLibrary(NAME);
    } else {
      loadFromJar();
    }
  }

  private static void loadFromJar() {
    String platform = platform();
    String resource = "/natives/" + platform + "/" + System.mapLibraryName(NAME);
    try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
      if (library == null) {
        throw new UnsatisfiedLinkError(
            "torchlet: this jar has no library for "
                + platform
                + " ("
                + resource
                + "); build it there with `cargo xtask java`, or set -D"
                + PATH_PROPERTY
                + "=PATH");
      }
      // Only this user can write to the folder, so that nobody replaces the file.
      Path folder = Files.createTempDirectory("torchlet");
      Path file = folder.resolve(System.mapLibraryName(NAME));
      try {
        Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
        System.load(file.toString());
      } finally {
        // A loaded library remains mapped. Windows keeps the file until the JVM ends.
        if (!file.toFile().delete()) {
          file.toFile().deleteOnExit();
        }
        if (!folder.toFile().delete()) {
          folder.toFile().deleteOnExit();
        }
      }
    } catch (IOException error) {
      UnsatisfiedLinkError thrown =
          new UnsatisfiedLinkError(
              "torchlet: cannot write the native library to "
                  + System.getProperty("java.io.tmpdir")
                  + ": "
                  + error.getMessage()
                  + "; set -Djava.io.tmpdir=FOLDER or -D"
                  + PATH_PROPERTY
                  + "=PATH");
      thrown.initCause(error);
      throw thrown;
    }
  }

  /** Operating system and processor, as in {@code linux-x86_64}. */
  static String platform() {
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String arch = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
    if (os.startsWith("mac")) {
      os = "macos";
    } else if (os.startsWith("windows")) {
      os = "windows";
    }
    if (arch.equals("amd64")) {
      arch = "x86_64";
    } else if (arch.equals("arm64")) {
      arch = "aarch64";
    }
    return os + "-" + arch;
  }
}
