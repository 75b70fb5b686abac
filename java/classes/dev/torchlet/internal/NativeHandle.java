package dev.torchlet.internal;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The number of a native object, which is released when it is closed, or when the garbage collector
 * finds that nobody uses its owner. Not part of the API.
 *
 * <p>{@code java.lang.ref.Cleaner} would do this, but Android has it from API level 33 on.
 */
public final class NativeHandle extends PhantomReference<Object> {
  /** Releases a native object. */
  public interface Release {
    void release(long number);
  }

  private static final ReferenceQueue<Object> QUEUE = new ReferenceQueue<>();

  /** Handles that are not closed; a phantom reference must itself be reachable. */
  private static final Set<NativeHandle> OPEN =
      Collections.newSetFromMap(new ConcurrentHashMap<NativeHandle, Boolean>());

  static {
    Thread cleaner =
        new Thread("torchlet-cleaner") {
          @Override
          public void run() {
            while (true) {
              try {
                ((NativeHandle) QUEUE.remove()).close();
              } catch (InterruptedException | RuntimeException error) {
                // The next object must be released all the same.
              }
            }
          }
        };
    cleaner.setDaemon(true);
    cleaner.start();
  }

  private final Release release;
  private final String closedMessage;
  private volatile long number;

  /**
   * Creates a handle.
   *
   * @param owner the object whose end releases the native object
   * @param number the number of the native object
   * @param closedMessage message of the exception after the handle was closed
   * @param release must not refer to the owner
   */
  public NativeHandle(Object owner, long number, String closedMessage, Release release) {
    super(owner, QUEUE);
    this.number = number;
    this.closedMessage = closedMessage;
    this.release = release;
    OPEN.add(this);
  }

  /** Returns the number, or throws if the handle was closed. */
  public long number() {
    long number = this.number;
    if (number == 0) {
      throw new IllegalStateException(closedMessage);
    }
    return number;
  }

  public boolean isOpen() {
    return number != 0;
  }

  /** Releases the native object, unless that was done. */
  public void close() {
    long number;
    synchronized (this) {
      number = this.number;
      this.number = 0;
    }
    if (number != 0) {
      OPEN.remove(this);
      clear();
      release.release(number);
    }
  }
}
