package dev.torchlet;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * An input or output of a method: a tensor, a number, a string, or nothing.
 *
 * <p>The {@code to} methods throw {@link IllegalStateException} if the value has another type.
 */
public final class EValue {
  private static final int NONE = 0;
  private static final int TENSOR = 1;
  private static final int STRING = 2;
  private static final int DOUBLE = 3;
  private static final int INT = 4;
  private static final int BOOL = 5;
  private static final String[] NAMES = {"None", "Tensor", "String", "Double", "Int", "Bool"};

  private final int type;
  private final Object data;

  private EValue(int type, Object data) {
    if (data == null && type != NONE) {
      throw new IllegalArgumentException(
          "EValue.from: expected a " + NAMES[type] + ", found null; use EValue.optionalNone()");
    }
    this.type = type;
    this.data = data;
  }

  /** A value of type {@code Optional} that contains nothing. */
  public static EValue optionalNone() {
    return new EValue(NONE, null);
  }

  public static EValue from(Tensor tensor) {
    return new EValue(TENSOR, tensor);
  }

  public static EValue from(boolean value) {
    return new EValue(BOOL, value);
  }

  public static EValue from(long value) {
    return new EValue(INT, value);
  }

  public static EValue from(double value) {
    return new EValue(DOUBLE, value);
  }

  public static EValue from(String value) {
    return new EValue(STRING, value);
  }

  public boolean isNone() {
    return type == NONE;
  }

  public boolean isTensor() {
    return type == TENSOR;
  }

  public boolean isBool() {
    return type == BOOL;
  }

  public boolean isInt() {
    return type == INT;
  }

  public boolean isDouble() {
    return type == DOUBLE;
  }

  public boolean isString() {
    return type == STRING;
  }

  private Object expect(int expected) {
    if (type != expected) {
      throw new IllegalStateException(
          "Expected EValue type " + NAMES[expected] + ", actual type " + NAMES[type]);
    }
    return data;
  }

  public Tensor toTensor() {
    return (Tensor) expect(TENSOR);
  }

  public boolean toBool() {
    return (Boolean) expect(BOOL);
  }

  public long toInt() {
    return (Long) expect(INT);
  }

  public double toDouble() {
    return (Double) expect(DOUBLE);
  }

  /** The string of a value; {@link #toString} describes the value instead. */
  public String toStr() {
    return (String) expect(STRING);
  }

  @Override
  public String toString() {
    return type == NONE ? "None" : String.valueOf(data);
  }

  /** Serializes the value in ExecuTorch's form: type, then big-endian data. */
  public byte[] toByteArray() {
    switch (type) {
      case TENSOR:
        byte[] tensor = toTensor().toByteArray();
        return ByteBuffer.allocate(1 + tensor.length).put((byte) type).put(tensor).array();
      case BOOL:
        return new byte[] {(byte) type, (byte) (toBool() ? 1 : 0)};
      case INT:
        return ByteBuffer.allocate(9).put((byte) type).putLong(toInt()).array();
      case DOUBLE:
        return ByteBuffer.allocate(9).put((byte) type).putDouble(toDouble()).array();
      case STRING:
        byte[] text = toStr().getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(5 + text.length)
            .put((byte) type)
            .putInt(text.length)
            .put(text)
            .array();
      default:
        return new byte[] {(byte) type};
    }
  }

  /**
   * Reads what {@link #toByteArray} wrote.
   *
   * @throws IllegalArgumentException if the bytes are malformed
   */
  public static EValue fromByteArray(byte[] bytes) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    try {
      int type = buffer.get();
      switch (type) {
        case NONE:
          return optionalNone();
        case TENSOR:
          return from(Tensor.fromByteArray(Arrays.copyOfRange(bytes, 1, bytes.length)));
        case BOOL:
          return from(buffer.get() != 0);
        case INT:
          return from(buffer.getLong());
        case DOUBLE:
          return from(buffer.getDouble());
        case STRING:
          int length = buffer.getInt();
          if (length < 0 || length > buffer.remaining()) {
            throw new IllegalArgumentException(
                "invalid buffer: a string of " + length + " bytes, found " + buffer.remaining());
          }
          byte[] text = new byte[length];
          buffer.get(text);
          return from(new String(text, StandardCharsets.UTF_8));
        default:
          throw new IllegalArgumentException("invalid type code: " + type);
      }
    } catch (BufferUnderflowException error) {
      throw new IllegalArgumentException(
          "invalid buffer: " + bytes.length + " bytes are too few", error);
    }
  }
}
