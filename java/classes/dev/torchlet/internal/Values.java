package dev.torchlet.internal;

import dev.torchlet.DType;
import dev.torchlet.EValue;
import dev.torchlet.Tensor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Values as native methods pass them; {@code java/src/values.rs} is the other side. */
public final class Values {
  private static final int NONE = 0;
  private static final int TENSOR = 1;
  private static final int STRING = 2;
  private static final int DOUBLE = 3;
  private static final int INT = 4;
  private static final int BOOL = 5;

  /** Buffers and strings, {@code null} for other values. */
  public final Object[] objects;

  /** Kinds, numbers and shapes. */
  public final long[] description;

  private Values(Object[] objects, long[] description) {
    this.objects = objects;
    this.description = description;
  }

  /** Describes inputs. */
  public static Values of(EValue[] values) {
    if (values == null) {
      throw new IllegalArgumentException("inputs: expected an array of EValue, found null");
    }
    int words = 0;
    for (int i = 0; i < values.length; i++) {
      if (values[i] == null) {
        throw new IllegalArgumentException(
            "input " + i + ": expected an EValue, found null; use EValue.optionalNone()");
      }
      words += values[i].isTensor() ? 3 + values[i].toTensor().shape().length : 2;
    }
    Object[] objects = new Object[values.length];
    long[] description = new long[words];
    int at = 0;
    for (int i = 0; i < values.length; i++) {
      EValue value = values[i];
      if (value.isTensor()) {
        Tensor tensor = value.toTensor();
        long[] shape = tensor.shape();
        description[at++] = TENSOR;
        description[at++] = tensor.dtype().jniCode;
        description[at++] = shape.length;
        System.arraycopy(shape, 0, description, at, shape.length);
        at += shape.length;
        objects[i] = tensor.getRawDataBuffer();
      } else if (value.isInt()) {
        description[at++] = INT;
        description[at++] = value.toInt();
      } else if (value.isDouble()) {
        description[at++] = DOUBLE;
        description[at++] = Double.doubleToRawLongBits(value.toDouble());
      } else if (value.isBool()) {
        description[at++] = BOOL;
        description[at++] = value.toBool() ? 1 : 0;
      } else if (value.isString()) {
        description[at++] = STRING;
        objects[i] = value.toStr();
      } else {
        description[at++] = NONE;
      }
    }
    return new Values(objects, description);
  }

  /** Creates the outputs that a native method returned; the last element describes the others. */
  public static EValue[] read(Object[] returned) {
    EValue[] values = new EValue[returned.length - 1];
    long[] words = (long[]) returned[values.length];
    int at = 0;
    for (int i = 0; i < values.length; i++) {
      switch ((int) words[at++]) {
        case TENSOR:
          DType dtype = DType.fromJniCode((int) words[at++]);
          long[] shape = new long[(int) words[at++]];
          System.arraycopy(words, at, shape, 0, shape.length);
          at += shape.length;
          ByteBuffer data = (ByteBuffer) returned[i];
          data.order(ByteOrder.nativeOrder());
          values[i] = EValue.from(Tensor.fromBytes(data, shape, dtype));
          break;
        case STRING:
          values[i] = EValue.from((String) returned[i]);
          break;
        case DOUBLE:
          values[i] = EValue.from(Double.longBitsToDouble(words[at++]));
          break;
        case INT:
          values[i] = EValue.from(words[at++]);
          break;
        case BOOL:
          values[i] = EValue.from(words[at++] != 0);
          break;
        default:
          values[i] = EValue.optionalNone();
      }
    }
    return values;
  }
}
