package dev.torchlet;

import java.nio.Buffer;
import java.nio.BufferOverflowException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;

/**
 * A tensor: elements in row-major order in a direct buffer.
 *
 * <p>{@code Tensor.fromBlob(data, shape)} copies an array, and uses a direct buffer in place: it
 * can be overwritten between calls of {@link Module}, which saves allocations. Outputs have memory
 * of their own, which stays valid when the module runs again or is closed.
 *
 * <p>The position and limit of a buffer do not matter: a tensor has all of its elements.
 */
public final class Tensor {
  private final DType dtype;
  private final long[] shape;

  /** Of the class that {@link #view} returns for the type. */
  private final Buffer data;

  private Tensor(DType dtype, Buffer data, long[] shape) {
    this.dtype = dtype;
    this.data = data;
    this.shape = shape.clone();
  }

  // Creation

  public static ByteBuffer allocateByteBuffer(int numElements) {
    return allocate(numElements, 1);
  }

  public static IntBuffer allocateIntBuffer(int numElements) {
    return allocate(numElements, 4).asIntBuffer();
  }

  public static FloatBuffer allocateFloatBuffer(int numElements) {
    return allocate(numElements, 4).asFloatBuffer();
  }

  public static LongBuffer allocateLongBuffer(int numElements) {
    return allocate(numElements, 8).asLongBuffer();
  }

  /** A buffer of 16-bit elements: float16, bfloat16 or int16. */
  public static ShortBuffer allocateHalfBuffer(int numElements) {
    return allocate(numElements, 2).asShortBuffer();
  }

  public static DoubleBuffer allocateDoubleBuffer(int numElements) {
    return allocate(numElements, 8).asDoubleBuffer();
  }

  private static ByteBuffer allocate(long numElements, int size) {
    if (numElements < 0 || numElements > Integer.MAX_VALUE / size) {
      throw new IllegalArgumentException(
          "expected 0 to " + Integer.MAX_VALUE / size + " elements, found " + numElements);
    }
    return ByteBuffer.allocateDirect((int) numElements * size).order(ByteOrder.nativeOrder());
  }

  /** A uint8 tensor. */
  public static Tensor fromBlobUnsigned(byte[] data, long[] shape) {
    return copied(DType.UINT8, data, data == null ? -1 : data.length, shape);
  }

  /** An int8 tensor. */
  public static Tensor fromBlob(byte[] data, long[] shape) {
    return copied(DType.INT8, data, data == null ? -1 : data.length, shape);
  }

  /** A bool tensor. */
  public static Tensor fromBlob(boolean[] data, long[] shape) {
    byte[] bytes = new byte[data == null ? 0 : data.length];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) (data[i] ? 1 : 0);
    }
    return copied(DType.BOOL, data == null ? null : bytes, bytes.length, shape);
  }

  public static Tensor fromBlob(int[] data, long[] shape) {
    return copied(DType.INT32, data, data == null ? -1 : data.length, shape);
  }

  public static Tensor fromBlob(float[] data, long[] shape) {
    return copied(DType.FLOAT, data, data == null ? -1 : data.length, shape);
  }

  /** A float16 tensor of these bits. {@link #fromBytes} makes the other types of 16 bits. */
  public static Tensor fromBlob(short[] data, long[] shape) {
    return copied(DType.HALF, data, data == null ? -1 : data.length, shape);
  }

  public static Tensor fromBlob(long[] data, long[] shape) {
    return copied(DType.INT64, data, data == null ? -1 : data.length, shape);
  }

  public static Tensor fromBlob(double[] data, long[] shape) {
    return copied(DType.DOUBLE, data, data == null ? -1 : data.length, shape);
  }

  private static Tensor copied(DType dtype, Object array, int length, long[] shape) {
    checkCapacity(array, length, shape);
    ByteBuffer bytes = allocate(length, dtype.elementSize());
    Buffer data = view(bytes, dtype);
    if (array instanceof byte[]) {
      bytes.duplicate().put((byte[]) array);
    } else if (array instanceof int[]) {
      ((IntBuffer) data).duplicate().put((int[]) array);
    } else if (array instanceof float[]) {
      ((FloatBuffer) data).duplicate().put((float[]) array);
    } else if (array instanceof short[]) {
      ((ShortBuffer) data).duplicate().put((short[]) array);
    } else if (array instanceof long[]) {
      ((LongBuffer) data).duplicate().put((long[]) array);
    } else {
      ((DoubleBuffer) data).duplicate().put((double[]) array);
    }
    return new Tensor(dtype, data, shape);
  }

  /** A uint8 tensor in a direct buffer. */
  public static Tensor fromBlobUnsigned(ByteBuffer data, long[] shape) {
    return inPlace(DType.UINT8, data, data == null ? null : data.order(), shape);
  }

  /** An int8 tensor in a direct buffer. */
  public static Tensor fromBlob(ByteBuffer data, long[] shape) {
    return inPlace(DType.INT8, data, data == null ? null : data.order(), shape);
  }

  public static Tensor fromBlob(IntBuffer data, long[] shape) {
    return inPlace(DType.INT32, data, data == null ? null : data.order(), shape);
  }

  public static Tensor fromBlob(FloatBuffer data, long[] shape) {
    return inPlace(DType.FLOAT, data, data == null ? null : data.order(), shape);
  }

  /** A float16 tensor in a direct buffer. */
  public static Tensor fromBlob(ShortBuffer data, long[] shape) {
    return inPlace(DType.HALF, data, data == null ? null : data.order(), shape);
  }

  public static Tensor fromBlob(LongBuffer data, long[] shape) {
    return inPlace(DType.INT64, data, data == null ? null : data.order(), shape);
  }

  public static Tensor fromBlob(DoubleBuffer data, long[] shape) {
    return inPlace(DType.DOUBLE, data, data == null ? null : data.order(), shape);
  }

  private static Tensor inPlace(DType dtype, Buffer data, ByteOrder order, long[] shape) {
    checkCapacity(data, data == null ? -1 : data.capacity(), shape);
    checkDirect(data.isDirect(), order);
    return new Tensor(dtype, data, shape);
  }

  /** A tensor of any type in the bytes of a direct buffer, in native byte order. */
  public static Tensor fromBytes(ByteBuffer data, long[] shape, DType dtype) {
    if (data == null || dtype == null) {
      throw new IllegalArgumentException("data and dtype: expected objects, found null");
    }
    long expected = Math.multiplyExact(numel(shape), (long) dtype.elementSize());
    if (data.capacity() != expected) {
      throw new IllegalArgumentException(
          "a "
              + dtype.torchName()
              + " tensor of shape "
              + Arrays.toString(shape)
              + " has "
              + expected
              + " bytes, found a buffer of "
              + data.capacity());
    }
    checkDirect(data.isDirect(), data.order());
    return new Tensor(dtype, view(data, dtype), shape);
  }

  /** All elements of a buffer, whatever its position, in the class of the element type. */
  private static Buffer view(ByteBuffer data, DType dtype) {
    ByteBuffer all = data.duplicate();
    all.clear();
    // A duplicate is big-endian at first.
    all.order(data.order());
    switch (dtype) {
      case INT16:
      case HALF:
      case BFLOAT16:
      case UINT16:
        return all.asShortBuffer();
      case INT32:
        return all.asIntBuffer();
      case INT64:
        return all.asLongBuffer();
      case FLOAT:
        return all.asFloatBuffer();
      case DOUBLE:
        return all.asDoubleBuffer();
      default:
        return all;
    }
  }

  public static Tensor ones(long[] shape, DType dtype) {
    return filled(shape, dtype, 1, "ones");
  }

  public static Tensor zeros(long[] shape, DType dtype) {
    return filled(shape, dtype, 0, "zeros");
  }

  private static Tensor filled(long[] shape, DType dtype, int value, String name) {
    ByteBuffer bytes = allocate(numel(shape), dtype.elementSize());
    Buffer data = view(bytes, dtype);
    for (int i = 0; value != 0 && i < data.capacity(); i++) {
      switch (dtype) {
        case UINT8:
        case INT8:
        case BOOL:
          ((ByteBuffer) data).put(i, (byte) value);
          break;
        case INT16:
          ((ShortBuffer) data).put(i, (short) value);
          break;
        case INT32:
          ((IntBuffer) data).put(i, value);
          break;
        case INT64:
          ((LongBuffer) data).put(i, value);
          break;
        case FLOAT:
          ((FloatBuffer) data).put(i, value);
          break;
        case DOUBLE:
          ((DoubleBuffer) data).put(i, value);
          break;
        default:
          throw new IllegalArgumentException(
              "Tensor." + name + "() cannot be used with DType " + dtype);
      }
    }
    return new Tensor(dtype, data, shape);
  }

  // Properties

  public DType dtype() {
    return dtype;
  }

  /** Code of the element type. */
  public int dtypeJniCode() {
    return dtype.jniCode;
  }

  /** The sizes of the dims, copied. */
  public long[] shape() {
    return shape.clone();
  }

  /** Number of elements. */
  public long numel() {
    return numel(shape);
  }

  /** Number of elements of a shape. */
  public static long numel(long[] shape) {
    if (shape == null) {
      throw new IllegalArgumentException("shape: expected an array of sizes, found null");
    }
    long product = 1;
    for (long size : shape) {
      if (size < 0) {
        throw new IllegalArgumentException("Shape elements must be non negative");
      }
      // An empty tensor may have huge dims beside the empty one.
      product = size == 0 || product == 0 ? 0 : multiplied(product, size, shape);
    }
    return product;
  }

  private static long multiplied(long a, long b, long[] shape) {
    if (a > Long.MAX_VALUE / b) {
      throw new IllegalArgumentException("shape " + Arrays.toString(shape) + " is too large");
    }
    return a * b;
  }

  /** The buffer of the elements: in place, of the class of the element type. */
  public Buffer getRawDataBuffer() {
    return data;
  }

  // Elements

  private IllegalStateException unsupported(String action) {
    return new IllegalStateException(
        "Tensor of type " + dtype.torchName() + " cannot " + action);
  }

  private void expect(boolean supported, String kind) {
    if (!supported) {
      throw unsupported("return data as " + kind + " array.");
    }
  }

  /** The elements of an int8 tensor. */
  public byte[] getDataAsByteArray() {
    expect(dtype == DType.INT8, "byte");
    return bytes();
  }

  /** The elements of a uint8 tensor. */
  public byte[] getDataAsUnsignedByteArray() {
    expect(dtype == DType.UINT8, "unsigned byte");
    return bytes();
  }

  /** The elements of a bool tensor. */
  public boolean[] getDataAsBooleanArray() {
    expect(dtype == DType.BOOL, "boolean");
    byte[] bytes = bytes();
    boolean[] array = new boolean[bytes.length];
    for (int i = 0; i < array.length; i++) {
      array[i] = bytes[i] != 0;
    }
    return array;
  }

  private byte[] bytes() {
    byte[] array = new byte[data.capacity()];
    all((ByteBuffer) data).get(array);
    return array;
  }

  /** The elements of an int16 or uint16 tensor, or the bits of a float16 or bfloat16 one. */
  public short[] getDataAsShortArray() {
    expect(data instanceof ShortBuffer, "short");
    short[] array = new short[data.capacity()];
    all((ShortBuffer) data).get(array);
    return array;
  }

  public int[] getDataAsIntArray() {
    expect(dtype == DType.INT32, "int");
    int[] array = new int[data.capacity()];
    all((IntBuffer) data).get(array);
    return array;
  }

  /** The elements of a float32 tensor, or those of a float16 or bfloat16 one, widened. */
  public float[] getDataAsFloatArray() {
    expect(isReadableAsFloat(), "float");
    FloatBuffer target = FloatBuffer.allocate(data.capacity());
    copyDataInto(target);
    return target.array();
  }

  public long[] getDataAsLongArray() {
    expect(dtype == DType.INT64, "long");
    long[] array = new long[data.capacity()];
    all((LongBuffer) data).get(array);
    return array;
  }

  public double[] getDataAsDoubleArray() {
    expect(dtype == DType.DOUBLE, "double");
    double[] array = new double[data.capacity()];
    all((DoubleBuffer) data).get(array);
    return array;
  }

  private boolean isReadableAsFloat() {
    return dtype == DType.FLOAT || dtype == DType.HALF || dtype == DType.BFLOAT16;
  }

  /**
   * Copies the elements to the position of a buffer: those of a float32 tensor, or those of a
   * float16 or bfloat16 one, widened.
   *
   * @throws BufferOverflowException if the buffer is too small; nothing is written then
   */
  public void copyDataInto(FloatBuffer dst) {
    if (!isReadableAsFloat()) {
      throw unsupported("copy data into FloatBuffer.");
    }
    if (dtype == DType.FLOAT) {
      dst.put(all((FloatBuffer) data));
      return;
    }
    ShortBuffer bits = (ShortBuffer) data;
    if (dst.remaining() < bits.capacity()) {
      throw new BufferOverflowException();
    }
    for (int i = 0; i < bits.capacity(); i++) {
      dst.put(dtype == DType.HALF ? halfToFloat(bits.get(i)) : bfloat16ToFloat(bits.get(i)));
    }
  }

  /** Copies the elements of an int8 tensor to the position of a buffer. */
  public void copyDataInto(ByteBuffer dst) {
    if (dtype != DType.INT8) {
      throw unsupported("copy data into ByteBuffer.");
    }
    dst.put(all((ByteBuffer) data));
  }

  /** Copies the elements of a uint8 tensor to the position of a buffer. */
  public void copyDataIntoUnsigned(ByteBuffer dst) {
    if (dtype != DType.UINT8) {
      throw unsupported("copy data into ByteBuffer (unsigned).");
    }
    dst.put(all((ByteBuffer) data));
  }

  /** Copies the elements of an int32 tensor to the position of a buffer. */
  public void copyDataInto(IntBuffer dst) {
    if (dtype != DType.INT32) {
      throw unsupported("copy data into IntBuffer.");
    }
    dst.put(all((IntBuffer) data));
  }

  /** Copies the elements of an int64 tensor to the position of a buffer. */
  public void copyDataInto(LongBuffer dst) {
    if (dtype != DType.INT64) {
      throw unsupported("copy data into LongBuffer.");
    }
    dst.put(all((LongBuffer) data));
  }

  /** Copies the elements of a float64 tensor to the position of a buffer. */
  public void copyDataInto(DoubleBuffer dst) {
    if (dtype != DType.DOUBLE) {
      throw unsupported("copy data into DoubleBuffer.");
    }
    dst.put(all((DoubleBuffer) data));
  }

  /** Copies 16-bit elements to the position of a buffer, without conversion. */
  public void copyDataInto(ShortBuffer dst) {
    if (!(data instanceof ShortBuffer)) {
      throw unsupported("copy data into ShortBuffer.");
    }
    dst.put(all((ShortBuffer) data));
  }

  // A duplicate has its own position, so that threads can read one tensor.

  private static ByteBuffer all(ByteBuffer data) {
    ByteBuffer all = data.duplicate();
    all.clear();
    return all;
  }

  private static ShortBuffer all(ShortBuffer data) {
    ShortBuffer all = data.duplicate();
    all.clear();
    return all;
  }

  private static IntBuffer all(IntBuffer data) {
    IntBuffer all = data.duplicate();
    all.clear();
    return all;
  }

  private static LongBuffer all(LongBuffer data) {
    LongBuffer all = data.duplicate();
    all.clear();
    return all;
  }

  private static FloatBuffer all(FloatBuffer data) {
    FloatBuffer all = data.duplicate();
    all.clear();
    return all;
  }

  private static DoubleBuffer all(DoubleBuffer data) {
    DoubleBuffer all = data.duplicate();
    all.clear();
    return all;
  }

  private static float bfloat16ToFloat(short bits) {
    return Float.intBitsToFloat(bits << 16);
  }

  /** {@code Float.float16ToFloat}, which Java has from version 20 on. */
  private static float halfToFloat(short bits) {
    int sign = (bits & 0x8000) << 16;
    int exponent = bits >>> 10 & 0x1f;
    int mantissa = bits & 0x3ff;
    if (exponent == 0) {
      // Zeros and subnormal numbers are multiples of 2^-24, which float32 has exactly.
      float magnitude = mantissa * 0x1p-24f;
      return sign == 0 ? magnitude : -magnitude;
    }
    // 112 is the difference of the exponents' biases; 31 stands for infinity and NaN.
    int widened = exponent == 31 ? 255 : exponent + 112;
    return Float.intBitsToFloat(sign | widened << 23 | mantissa << 13);
  }

  // Serialization

  /** Serializes the tensor in ExecuTorch's form: type, rank, sizes, then big-endian elements. */
  public byte[] toByteArray() {
    if (shape.length > Byte.MAX_VALUE) {
      throw new IllegalArgumentException("expected at most 127 dims, found " + shape.length);
    }
    long size = 2 + 4L * shape.length + numel() * dtype.elementSize();
    if (size > Integer.MAX_VALUE) {
      throw new IllegalArgumentException("a tensor of " + size + " bytes is too large");
    }
    ByteBuffer target = ByteBuffer.allocate((int) size);
    target.put((byte) dtype.jniCode).put((byte) shape.length);
    for (long dim : shape) {
      target.putInt((int) dim);
    }
    if (data instanceof ShortBuffer) {
      target.asShortBuffer().put(all((ShortBuffer) data));
    } else if (data instanceof IntBuffer) {
      target.asIntBuffer().put(all((IntBuffer) data));
    } else if (data instanceof LongBuffer) {
      target.asLongBuffer().put(all((LongBuffer) data));
    } else if (data instanceof FloatBuffer) {
      target.asFloatBuffer().put(all((FloatBuffer) data));
    } else if (data instanceof DoubleBuffer) {
      target.asDoubleBuffer().put(all((DoubleBuffer) data));
    } else if (dtype.elementSize() == 1) {
      target.put(all((ByteBuffer) data));
    } else {
      throw new IllegalArgumentException(dtype + " tensors cannot be serialized");
    }
    return target.array();
  }

  /**
   * Reads what {@link #toByteArray} wrote.
   *
   * @throws IllegalArgumentException if the bytes are malformed
   */
  public static Tensor fromByteArray(byte[] bytes) {
    ByteBuffer source = ByteBuffer.wrap(bytes);
    try {
      DType dtype = DType.fromJniCode(source.get());
      long[] shape = new long[Math.max(source.get(), 0)];
      for (int i = 0; i < shape.length; i++) {
        shape[i] = source.getInt();
      }
      long expected = multiplied(numel(shape), dtype.elementSize(), shape);
      if (source.remaining() != expected) {
        throw new IllegalArgumentException(
            "invalid buffer: the shape has " + expected + " bytes, found " + source.remaining());
      }
      ByteBuffer target = allocate(numel(shape), dtype.elementSize());
      Buffer data = view(target, dtype);
      if (data instanceof ShortBuffer) {
        ((ShortBuffer) data).duplicate().put(source.asShortBuffer());
      } else if (data instanceof IntBuffer) {
        ((IntBuffer) data).duplicate().put(source.asIntBuffer());
      } else if (data instanceof LongBuffer) {
        ((LongBuffer) data).duplicate().put(source.asLongBuffer());
      } else if (data instanceof FloatBuffer) {
        ((FloatBuffer) data).duplicate().put(source.asFloatBuffer());
      } else if (data instanceof DoubleBuffer) {
        ((DoubleBuffer) data).duplicate().put(source.asDoubleBuffer());
      } else if (dtype.elementSize() == 1) {
        ((ByteBuffer) data).duplicate().put(source);
      } else {
        throw new IllegalArgumentException(dtype + " tensors cannot be deserialized");
      }
      return new Tensor(dtype, data, shape);
    } catch (BufferUnderflowException error) {
      throw new IllegalArgumentException(
          "invalid buffer: " + bytes.length + " bytes are too few", error);
    }
  }

  @Override
  public String toString() {
    return "Tensor(" + Arrays.toString(shape) + ", dtype=torch." + dtype.torchName() + ")";
  }

  private static void checkCapacity(Object data, int capacity, long[] shape) {
    if (data == null) {
      throw new IllegalArgumentException("data: expected an array or a direct buffer, found null");
    }
    long numel = numel(shape);
    if (capacity != numel) {
      throw new IllegalArgumentException(
          "Inconsistent data capacity:"
              + capacity
              + " and shape number elements:"
              + numel
              + " shape:"
              + Arrays.toString(shape));
    }
  }

  private static void checkDirect(boolean isDirect, ByteOrder order) {
    if (!isDirect) {
      throw new IllegalArgumentException(
          "Data buffer must be direct (java.nio.ByteBuffer#allocateDirect)");
    }
    if (order != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException(
          "Data buffer must have native byte order (java.nio.ByteOrder#nativeOrder)");
    }
  }
}
