package dev.torchlet;

import java.util.Arrays;

/** Metadata of an input or output of a method. */
public final class ValueMetadata {
  private static final String[] KINDS = {
    "None", "Tensor", "String", "Double", "Int", "Bool", "List"
  };

  private final String kind;
  private final DType dtype;
  private final long[] shape;
  private final boolean isDynamic;

  ValueMetadata(long[] description, int at) {
    kind = KINDS[(int) description[at]];
    if (kind.equals("Tensor")) {
      dtype = DType.fromJniCode((int) description[at + 1]);
      isDynamic = description[at + 2] != 0;
      int rank = (int) description[at + 3];
      shape = Arrays.copyOfRange(description, at + 4, at + 4 + rank);
    } else {
      dtype = null;
      isDynamic = false;
      shape = new long[0];
    }
  }

  /** {@code Tensor}, {@code Int}, {@code Double}, {@code Bool}, {@code String}, {@code List} or
   * {@code None}. */
  public String getKind() {
    return kind;
  }

  /** The element type of a tensor; {@code null} for other kinds. */
  public DType getDType() {
    return dtype;
  }

  /** The shape of a tensor, or the upper bound of a dynamic one. Empty for other kinds. */
  public long[] getShape() {
    return shape.clone();
  }

  /** Whether the shape is dynamic. */
  public boolean isDynamic() {
    return isDynamic;
  }

  @Override
  public String toString() {
    if (dtype == null) {
      return kind;
    }
    return (isDynamic ? "at most " : "") + dtype.torchName() + Arrays.toString(shape);
  }
}
