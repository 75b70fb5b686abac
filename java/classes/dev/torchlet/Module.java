package dev.torchlet;

import dev.torchlet.internal.Native;
import dev.torchlet.internal.NativeHandle;
import dev.torchlet.internal.Values;
import java.io.Closeable;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A program and its methods.
 *
 * <pre>{@code
 * try (Module module = Module.load("model.pte")) {
 *   EValue[] outputs = module.forward(EValue.from(image));
 *   float[] scores = outputs[0].toTensor().getDataAsFloatArray();
 * }
 * }</pre>
 *
 * <p>Any thread may use a module; calls run one after the other. Its memory is freed when it is
 * closed, or when the garbage collector finds that nobody uses it, which may be late.
 */
public class Module implements Closeable {
  /** Reads the whole file. */
  public static final int LOAD_MODE_FILE = 0;

  /** Maps the file into memory: pages are read on first use. Nobody may write to it meanwhile. */
  public static final int LOAD_MODE_MMAP = 1;

  /** Maps the file and locks its pages in memory, or fails. */
  public static final int LOAD_MODE_MMAP_USE_MLOCK = 2;

  /** Maps the file and locks its pages in memory if the system permits it. */
  public static final int LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS = 3;

  private final NativeHandle handle;
  private final ReentrantLock lock = new ReentrantLock();

  private Module(long number) {
    handle = new NativeHandle(this, number, "Module has been destroyed", Native::closeModule);
  }

  public static Module load(String modelPath) {
    return builder().load(modelPath);
  }

  public static Module load(String modelPath, int loadMode) {
    return builder().loadMode(loadMode).load(modelPath);
  }

  /**
   * Opens a program.
   *
   * @param numThreads number of threads of kernels; 0 chooses by the machine
   */
  public static Module load(String modelPath, int loadMode, int numThreads) {
    return builder().loadMode(loadMode).threads(numThreads).load(modelPath);
  }

  public static Module load(String modelPath, BackendOptionsMap options) {
    return builder().backendOptions(options).load(modelPath);
  }

  public static Module load(String modelPath, BackendOptionsMap options, int loadMode) {
    return builder().backendOptions(options).loadMode(loadMode).load(modelPath);
  }

  public static Module load(
      String modelPath, BackendOptionsMap options, int loadMode, int numThreads) {
    return builder().backendOptions(options).loadMode(loadMode).threads(numThreads).load(modelPath);
  }

  /** Options for opening a program. */
  public static Builder builder() {
    return new Builder();
  }

  /** Runs {@code forward}; see {@link #execute}. */
  public EValue[] forward(EValue... inputs) {
    return execute("forward", inputs);
  }

  /**
   * Runs a method, and loads it first if needed.
   *
   * @param inputs direct buffers of tensors are read in place, without a copy on Java's side
   * @return the outputs, with memory of their own
   * @throws ExecutorchRuntimeException if an input does not fit or the method failed
   * @throws IllegalStateException if the module was closed
   */
  public EValue[] execute(String methodName, EValue... inputs) {
    Values values = Values.of(inputs);
    lock.lock();
    try {
      return Values.read(
          Native.execute(handle.number(), methodName, values.description, values.objects));
    } finally {
      lock.unlock();
    }
  }

  /** Loads a method, which otherwise happens at its first call. */
  public void loadMethod(String methodName) {
    lock.lock();
    try {
      Native.loadMethod(handle.number(), methodName);
    } finally {
      lock.unlock();
    }
  }

  /** The names of the methods. */
  public String[] getMethods() {
    lock.lock();
    try {
      return Native.methodNames(handle.number());
    } finally {
      lock.unlock();
    }
  }

  /**
   * Metadata of a method.
   *
   * @throws IllegalArgumentException if the program has no such method
   */
  public MethodMetadata getMethodMetadata(String name) {
    lock.lock();
    try {
      long number = handle.number();
      try {
        return new MethodMetadata(
            name, Native.methodBackends(number, name), Native.methodInterface(number, name));
      } catch (ExecutorchRuntimeException.ExecutorchInvalidArgumentException error) {
        throw new IllegalArgumentException(
            "method " + name + " does not exist for this module: " + error.getMessage(), error);
      }
    } finally {
      lock.unlock();
    }
  }

  /** Exact memory of a method. The method need not be loaded. */
  public MemoryNeeds memoryNeeds(String methodName) {
    lock.lock();
    try {
      return new MemoryNeeds(Native.methodMemory(handle.number(), methodName));
    } finally {
      lock.unlock();
    }
  }

  /** What was compiled for which processor, and why, as text. */
  public String plan() {
    lock.lock();
    try {
      return Native.modulePlan(handle.number());
    } finally {
      lock.unlock();
    }
  }

  /** Restores the initial state of a method, such as a KV cache. */
  public void reset(String methodName) {
    lock.lock();
    try {
      Native.resetMethod(handle.number(), methodName);
    } finally {
      lock.unlock();
    }
  }

  /** Ends the current call of another thread, and makes later ones fail until {@link #resume}. */
  public void cancel() {
    Native.setCancelled(handle.number(), true);
  }

  /** Permits calls again after {@link #cancel}. */
  public void resume() {
    Native.setCancelled(handle.number(), false);
  }

  /** The newest log lines of the runtime, oldest first. */
  public String[] readLogBuffer() {
    handle.number();
    return readLogBufferStatic();
  }

  /** The newest log lines of the runtime, oldest first. */
  public static String[] readLogBufferStatic() {
    return Native.logLines();
  }

  /**
   * Writes the recorded events to {@code result.etdump} in the folder for temporary files, which on
   * Android is the cache folder of the app.
   *
   * @return whether it was written; only modules that {@link Builder#recordEvents} record events
   */
  public boolean etdump() {
    return etdump(new File(System.getProperty("java.io.tmpdir"), "result.etdump").getPath());
  }

  /**
   * Writes the recorded events as an ETDump, for ExecuTorch's and torchlet's tools.
   *
   * @return whether it was written; only modules that {@link Builder#recordEvents} record events
   */
  public boolean etdump(String outputPath) {
    lock.lock();
    try {
      byte[] dump = Native.moduleEtdump(handle.number());
      if (dump == null) {
        return false;
      }
      try (FileOutputStream file = new FileOutputStream(outputPath)) {
        file.write(dump);
        return true;
      } catch (IOException error) {
        return false;
      }
    } finally {
      lock.unlock();
    }
  }

  /**
   * Frees the program, unless that was done.
   *
   * @throws IllegalStateException if another thread runs a method
   */
  public void destroy() {
    if (!lock.tryLock()) {
      throw new IllegalStateException("Cannot destroy module while method is executing");
    }
    try {
      handle.close();
    } finally {
      lock.unlock();
    }
  }

  @Override
  public void close() {
    destroy();
  }

  /** Options for opening a program. */
  public static final class Builder {
    private final List<String> settings = new ArrayList<>();

    private Builder() {}

    private Builder set(String name, String value) {
      if (value == null) {
        throw new IllegalArgumentException(name + ": expected a value, found null");
      }
      settings.add(name);
      settings.add(value);
      return this;
    }

    /**
     * The processor: {@code auto}, {@code cpu}, {@code as-exported}, or a device such as {@code
     * vulkan}. {@link ExecuTorchRuntime#getProcessors} lists those of this build.
     */
    public Builder runOn(String processor) {
      return set("run_on", processor);
    }

    /** Number of threads of kernels; 0 chooses by the machine. */
    public Builder threads(int threads) {
      if (threads < 0) {
        throw new IllegalArgumentException("threads: expected 0 or more, found " + threads);
      }
      return threads == 0 ? this : set("threads", Integer.toString(threads));
    }

    /** Maximum memory of a method in bytes. */
    public Builder memoryLimit(long bytes) {
      return set("memory_limit", Long.toString(bytes));
    }

    /**
     * A folder for compiled programs, which then need not be compiled again. On Android, pass the
     * app's {@code getCacheDir()}. It must be private to the app.
     */
    public Builder compileCache(String folder) {
      return set("compile_cache", folder);
    }

    /** A file of external weights (.ptd). */
    public Builder data(String path) {
      ExecuTorchRuntime.validateFilePath(path, "data path");
      return set("data", path);
    }

    /** An option of a backend. */
    public Builder backendOption(String backend, String key, int value) {
      return backendOptions(new BackendOptionsMap().setInt(backend, key, value));
    }

    /** Options of backends. */
    public Builder backendOptions(BackendOptionsMap options) {
      settings.addAll(options.settings());
      return this;
    }

    /** One of the constants of {@link Module}; default is {@link Module#LOAD_MODE_FILE}. */
    public Builder loadMode(int loadMode) {
      switch (loadMode) {
        case LOAD_MODE_FILE:
          return set("load_mode", "read");
        case LOAD_MODE_MMAP:
          return set("load_mode", "map");
        case LOAD_MODE_MMAP_USE_MLOCK:
          return set("load_mode", "lock");
        case LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS:
          return set("load_mode", "lock_if_allowed");
        default:
          throw new IllegalArgumentException("Unknown load mode: " + loadMode);
      }
    }

    /** Records events for {@link Module#etdump}, which costs memory for each call. */
    public Builder recordEvents() {
      return set("record", "events");
    }

    /**
     * Opens a file.
     *
     * @throws IllegalArgumentException if it is no readable file
     * @throws ExecutorchRuntimeException if it is no valid program
     */
    public Module load(String modelPath) {
      ExecuTorchRuntime.validateFilePath(modelPath, "model path");
      return open(modelPath, null);
    }

    /** Opens a program in a direct buffer, which is copied. */
    public Module load(ByteBuffer program) {
      if (program == null || !program.isDirect()) {
        throw new IllegalArgumentException(
            "program: expected a direct buffer, found "
                + (program == null ? "null" : "a buffer on the heap"));
      }
      return open(null, program.slice());
    }

    /** Opens a program in an array, which is copied. */
    public Module load(byte[] program) {
      if (program == null) {
        throw new IllegalArgumentException("program: expected an array, found null");
      }
      ByteBuffer copy = ByteBuffer.allocateDirect(program.length);
      copy.put(program);
      copy.flip();
      return open(null, copy);
    }

    /**
     * Opens a range of an open file, which is copied: on Android, an uncompressed asset with its
     * {@code AssetFileDescriptor}.
     */
    public Module load(FileDescriptor file, long offset, long length) throws IOException {
      // The stream is not closed, because that would close the descriptor of the caller.
      FileChannel channel = new FileInputStream(file).getChannel();
      if (offset < 0 || length < 0 || offset > channel.size() - length) {
        throw new IllegalArgumentException(
            "expected a range in a file of "
                + channel.size()
                + " bytes, found "
                + length
                + " bytes at "
                + offset);
      }
      return open(null, channel.map(FileChannel.MapMode.READ_ONLY, offset, length));
    }

    private Module open(String path, ByteBuffer program) {
      return new Module(Native.openModule(path, program, settings.toArray(new String[0])));
    }
  }
}
