package dev.torchlet;

/** Exact memory of a method in bytes, without weights that are used in place in the file. */
public final class MemoryNeeds {
  private final long arena;
  private final long planned;
  private final long scratch;
  private final long unplanned;

  MemoryNeeds(long[] bytes) {
    arena = bytes[0];
    planned = bytes[1];
    scratch = bytes[2];
    unplanned = bytes[3];
  }

  /** Values, instructions, delegates, packed weights. */
  public long getArena() {
    return arena;
  }

  /** Buffers that the exporter planned for tensors. */
  public long getPlanned() {
    return planned;
  }

  /** Scratch memory of kernels. */
  public long getScratch() {
    return scratch;
  }

  /** Inputs, outputs and state that the exporter did not plan, in their maximum shapes. */
  public long getUnplanned() {
    return unplanned;
  }

  public long getTotal() {
    return arena + planned + scratch + unplanned;
  }

  @Override
  public String toString() {
    return getTotal()
        + " bytes: arena "
        + arena
        + ", planned "
        + planned
        + ", scratch "
        + scratch
        + ", unplanned "
        + unplanned;
  }
}
