package dev.torchlet;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;

import java.nio.BufferOverflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.ShortBuffer;
import org.junit.Test;

public class TensorTest {
  private static final long[] SHAPE = {2, 2};

  @Test
  public void arraysAreCopied() {
    float[] floats = {1, 2, 3, 4};
    Tensor tensor = Tensor.fromBlob(floats, SHAPE);
    floats[0] = 9;
    assertArrayEquals(new float[] {1, 2, 3, 4}, tensor.getDataAsFloatArray(), 0);
    assertEquals(DType.FLOAT, tensor.dtype());
    assertEquals(DType.FLOAT.jniCode, tensor.dtypeJniCode());
    assertEquals(4, tensor.numel());
    assertEquals("Tensor([2, 2], dtype=torch.float32)", tensor.toString());
    tensor.shape()[0] = 9;
    assertArrayEquals(SHAPE, tensor.shape());

    int[] ints = {Integer.MIN_VALUE, -1, 0, Integer.MAX_VALUE};
    assertArrayEquals(ints, Tensor.fromBlob(ints, SHAPE).getDataAsIntArray());
    long[] longs = {Long.MIN_VALUE, -1, 0, Long.MAX_VALUE};
    assertArrayEquals(longs, Tensor.fromBlob(longs, SHAPE).getDataAsLongArray());
    double[] doubles = {Double.MIN_VALUE, -1, 0, Double.MAX_VALUE};
    assertArrayEquals(doubles, Tensor.fromBlob(doubles, SHAPE).getDataAsDoubleArray(), 0);
    byte[] bytes = {-128, -1, 0, 127};
    assertArrayEquals(bytes, Tensor.fromBlob(bytes, SHAPE).getDataAsByteArray());
    Tensor unsigned = Tensor.fromBlobUnsigned(bytes, SHAPE);
    assertEquals(DType.UINT8, unsigned.dtype());
    assertArrayEquals(bytes, unsigned.getDataAsUnsignedByteArray());
    boolean[] bools = {true, false, false, true};
    assertArrayEquals(bools, Tensor.fromBlob(bools, SHAPE).getDataAsBooleanArray());
  }

  @Test
  public void directBuffersAreUsedInPlace() {
    FloatBuffer floats = Tensor.allocateFloatBuffer(4);
    Tensor tensor = Tensor.fromBlob(floats, SHAPE);
    assertSame(floats, tensor.getRawDataBuffer());
    floats.put(3, 9);
    // The position does not matter, and is not changed.
    floats.position(2);
    assertArrayEquals(new float[] {0, 0, 0, 9}, tensor.getDataAsFloatArray(), 0);
    assertEquals(2, floats.position());

    IntBuffer ints = Tensor.allocateIntBuffer(4);
    ints.put(new int[] {1, 2, 3, 4});
    assertArrayEquals(
        new int[] {1, 2, 3, 4}, Tensor.fromBlob(ints, SHAPE).getDataAsIntArray());
    LongBuffer longs = Tensor.allocateLongBuffer(4);
    longs.put(new long[] {1, 2, 3, 4});
    assertArrayEquals(
        new long[] {1, 2, 3, 4}, Tensor.fromBlob(longs, SHAPE).getDataAsLongArray());
    DoubleBuffer doubles = Tensor.allocateDoubleBuffer(4);
    doubles.put(new double[] {1, 2, 3, 4});
    assertArrayEquals(
        new double[] {1, 2, 3, 4}, Tensor.fromBlob(doubles, SHAPE).getDataAsDoubleArray(), 0);
    ByteBuffer bytes = Tensor.allocateByteBuffer(4);
    bytes.put(new byte[] {1, 2, 3, 4});
    byte[] expected = {1, 2, 3, 4};
    assertArrayEquals(expected, Tensor.fromBlob(bytes, SHAPE).getDataAsByteArray());
    assertArrayEquals(
        expected, Tensor.fromBlobUnsigned(bytes, SHAPE).getDataAsUnsignedByteArray());
  }

  @Test
  public void halfPrecisionIsWidened() {
    // Zeros, a subnormal number, one, the largest number, infinities.
    short[] bits = {
      0, (short) 0x8000, 1, 0x3c00, 0x7bff, 0x7c00, (short) 0xfc00, (short) 0xc100
    };
    float[] expected = {
      0, -0f, 5.9604645e-8f, 1, 65504, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, -2.5f
    };
    Tensor tensor = Tensor.fromBlob(bits, new long[] {8});
    assertEquals(DType.HALF, tensor.dtype());
    assertArrayEquals(bits, tensor.getDataAsShortArray());
    assertArrayEquals(expected, tensor.getDataAsFloatArray(), 0);
    ShortBuffer buffer = Tensor.allocateHalfBuffer(8);
    buffer.put(bits);
    assertArrayEquals(
        expected, Tensor.fromBlob(buffer, new long[] {8}).getDataAsFloatArray(), 0);
    assertArrayEquals(
        new float[] {Float.NaN},
        Tensor.fromBlob(new short[] {0x7e00}, new long[] {1}).getDataAsFloatArray(),
        0);
    Tensor read = Tensor.fromByteArray(tensor.toByteArray());
    assertArrayEquals(bits, read.getDataAsShortArray());
  }

  @Test
  public void bytesBecomeTensorsOfAnyType() {
    ByteBuffer bytes = Tensor.allocateByteBuffer(4);
    bytes.putShort((short) 0x3f80).putShort((short) 0xc000);
    Tensor tensor = Tensor.fromBytes(bytes, new long[] {2}, DType.BFLOAT16);
    assertArrayEquals(new float[] {1, -2}, tensor.getDataAsFloatArray(), 0);
    assertArrayEquals(
        new short[] {0x3f80, (short) 0xc000},
        Tensor.fromBytes(bytes, new long[] {2}, DType.INT16).getDataAsShortArray());
    for (DType dtype : DType.values()) {
      ByteBuffer memory = Tensor.allocateByteBuffer(6 * dtype.elementSize());
      assertEquals(dtype, Tensor.fromBytes(memory, new long[] {2, 3}, dtype).dtype());
      assertThrows(
          IllegalArgumentException.class,
          () -> Tensor.fromBytes(memory, new long[] {2, 4}, dtype));
      assertEquals(dtype, DType.fromJniCode(dtype.jniCode));
    }
    assertThrows(IllegalArgumentException.class, () -> DType.fromJniCode(30));
    assertThrows(IllegalArgumentException.class, () -> DType.fromJniCode(-1));
  }

  @Test
  public void otherTypesOfArraysAreRefused() {
    Tensor floats = Tensor.zeros(SHAPE, DType.FLOAT);
    assertThrows(IllegalStateException.class, floats::getDataAsByteArray);
    assertThrows(IllegalStateException.class, floats::getDataAsUnsignedByteArray);
    assertThrows(IllegalStateException.class, floats::getDataAsBooleanArray);
    assertThrows(IllegalStateException.class, floats::getDataAsShortArray);
    assertThrows(IllegalStateException.class, floats::getDataAsIntArray);
    assertThrows(IllegalStateException.class, floats::getDataAsLongArray);
    assertThrows(IllegalStateException.class, floats::getDataAsDoubleArray);
    Tensor ints = Tensor.zeros(SHAPE, DType.INT32);
    assertThrows(IllegalStateException.class, ints::getDataAsFloatArray);
    Tensor signed = Tensor.zeros(SHAPE, DType.INT8);
    assertThrows(IllegalStateException.class, signed::getDataAsUnsignedByteArray);
    IllegalStateException error =
        assertThrows(IllegalStateException.class, floats::getDataAsIntArray);
    assertEquals(
        "Tensor of type float32 cannot return data as int array.", error.getMessage());
  }

  @Test
  public void elementsAreCopiedIntoBuffers() {
    FloatBuffer floats = FloatBuffer.allocate(6);
    floats.position(1);
    Tensor.fromBlob(new float[] {1, 2, 3, 4}, SHAPE).copyDataInto(floats);
    assertEquals(5, floats.position());
    assertArrayEquals(new float[] {0, 1, 2, 3, 4, 0}, floats.array(), 0);
    IntBuffer ints = IntBuffer.allocate(4);
    Tensor.fromBlob(new int[] {1, 2, 3, 4}, SHAPE).copyDataInto(ints);
    assertArrayEquals(new int[] {1, 2, 3, 4}, ints.array());
    LongBuffer longs = LongBuffer.allocate(4);
    Tensor.fromBlob(new long[] {1, 2, 3, 4}, SHAPE).copyDataInto(longs);
    assertArrayEquals(new long[] {1, 2, 3, 4}, longs.array());
    DoubleBuffer doubles = DoubleBuffer.allocate(4);
    Tensor.fromBlob(new double[] {1, 2, 3, 4}, SHAPE).copyDataInto(doubles);
    assertArrayEquals(new double[] {1, 2, 3, 4}, doubles.array(), 0);
    ByteBuffer bytes = ByteBuffer.allocate(8);
    Tensor.fromBlob(new byte[] {1, 2, 3, 4}, SHAPE).copyDataInto(bytes);
    Tensor.fromBlobUnsigned(new byte[] {5, 6, 7, 8}, SHAPE).copyDataIntoUnsigned(bytes);
    assertArrayEquals(new byte[] {1, 2, 3, 4, 5, 6, 7, 8}, bytes.array());
    ShortBuffer shorts = ShortBuffer.allocate(4);
    Tensor.fromBlob(new short[] {1, 2, 3, 4}, SHAPE).copyDataInto(shorts);
    assertArrayEquals(new short[] {1, 2, 3, 4}, shorts.array());
    FloatBuffer none = FloatBuffer.allocate(0);
    Tensor.zeros(new long[] {0, 3}, DType.FLOAT).copyDataInto(none);
  }

  @Test
  public void targetsThatDoNotFitAreRefused() {
    Tensor floats = Tensor.ones(SHAPE, DType.FLOAT);
    assertThrows(
        BufferOverflowException.class, () -> floats.copyDataInto(FloatBuffer.allocate(3)));
    assertThrows(
        ReadOnlyBufferException.class,
        () -> floats.copyDataInto(FloatBuffer.allocate(4).asReadOnlyBuffer()));
    FloatBuffer small = FloatBuffer.allocate(3);
    Tensor half = Tensor.fromBlob(new short[] {1, 2, 3, 4}, SHAPE);
    assertThrows(BufferOverflowException.class, () -> half.copyDataInto(small));
    assertEquals("nothing was written", 0, small.position());
    assertThrows(
        BufferOverflowException.class, () -> half.copyDataInto(ShortBuffer.allocate(3)));
    assertThrows(IllegalStateException.class, () -> floats.copyDataInto(IntBuffer.allocate(4)));
    assertThrows(IllegalStateException.class, () -> floats.copyDataInto(LongBuffer.allocate(4)));
    assertThrows(IllegalStateException.class, () -> floats.copyDataInto(ByteBuffer.allocate(4)));
    assertThrows(IllegalStateException.class, () -> floats.copyDataInto(ShortBuffer.allocate(4)));
    assertThrows(IllegalStateException.class, () -> floats.copyDataInto(DoubleBuffer.allocate(4)));
    Tensor signed = Tensor.ones(SHAPE, DType.INT8);
    assertThrows(
        IllegalStateException.class, () -> signed.copyDataIntoUnsigned(ByteBuffer.allocate(4)));
    Tensor unsigned = Tensor.ones(SHAPE, DType.UINT8);
    assertThrows(
        IllegalStateException.class, () -> unsigned.copyDataInto(ByteBuffer.allocate(4)));
  }

  @Test
  public void buffersThatDoNotFitAreRefused() {
    assertThrows(
        "wrong number of elements",
        IllegalArgumentException.class,
        () -> Tensor.fromBlob(new float[5], SHAPE));
    assertThrows(
        "negative size",
        IllegalArgumentException.class,
        () -> Tensor.fromBlob(new float[4], new long[] {-1, -4}));
    assertThrows(
        "on the heap",
        IllegalArgumentException.class,
        () -> Tensor.fromBlob(FloatBuffer.allocate(4), SHAPE));
    ByteOrder foreign =
        ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN
            ? ByteOrder.LITTLE_ENDIAN
            : ByteOrder.BIG_ENDIAN;
    assertThrows(
        "foreign byte order",
        IllegalArgumentException.class,
        () -> Tensor.fromBlob(ByteBuffer.allocateDirect(16).order(foreign).asFloatBuffer(), SHAPE));
    assertThrows(IllegalArgumentException.class, () -> Tensor.fromBlob((float[]) null, SHAPE));
    assertThrows(IllegalArgumentException.class, () -> Tensor.fromBlob((FloatBuffer) null, SHAPE));
    assertThrows(IllegalArgumentException.class, () -> Tensor.fromBlob((boolean[]) null, SHAPE));
    assertThrows(IllegalArgumentException.class, () -> Tensor.fromBlob(new float[4], null));
    assertThrows(IllegalArgumentException.class, () -> Tensor.allocateFloatBuffer(-1));
    assertThrows(IllegalArgumentException.class, () -> Tensor.allocateFloatBuffer(1 << 30));
    assertThrows(
        IllegalArgumentException.class,
        () -> Tensor.zeros(new long[] {1L << 40, 1L << 40}, DType.FLOAT));
  }

  @Test
  public void onesAndZeros() {
    assertArrayEquals(
        new float[] {1, 1, 1, 1}, Tensor.ones(SHAPE, DType.FLOAT).getDataAsFloatArray(), 0);
    assertArrayEquals(
        new double[] {1, 1, 1, 1}, Tensor.ones(SHAPE, DType.DOUBLE).getDataAsDoubleArray(), 0);
    assertArrayEquals(new int[] {1, 1, 1, 1}, Tensor.ones(SHAPE, DType.INT32).getDataAsIntArray());
    assertArrayEquals(
        new long[] {1, 1, 1, 1}, Tensor.ones(SHAPE, DType.INT64).getDataAsLongArray());
    assertArrayEquals(
        new byte[] {1, 1, 1, 1}, Tensor.ones(SHAPE, DType.UINT8).getDataAsUnsignedByteArray());
    assertArrayEquals(new byte[] {1, 1, 1, 1}, Tensor.ones(SHAPE, DType.INT8).getDataAsByteArray());
    assertArrayEquals(
        new float[4], Tensor.zeros(SHAPE, DType.FLOAT).getDataAsFloatArray(), 0);
    assertThrows(IllegalArgumentException.class, () -> Tensor.ones(SHAPE, DType.QINT8));
  }

  @Test
  public void serializedTensorsAreReadBack() {
    Tensor longs = Tensor.fromBlob(new long[] {1, -2, 3, Long.MIN_VALUE}, SHAPE);
    Tensor read = Tensor.fromByteArray(longs.toByteArray());
    assertEquals(DType.INT64, read.dtype());
    assertArrayEquals(SHAPE, read.shape());
    assertArrayEquals(longs.getDataAsLongArray(), read.getDataAsLongArray());
    Tensor floats = Tensor.fromBlob(new float[] {1, -2, 3, Float.MIN_VALUE}, SHAPE);
    assertArrayEquals(
        floats.getDataAsFloatArray(),
        Tensor.fromByteArray(floats.toByteArray()).getDataAsFloatArray(),
        0);
    byte[] bytes = floats.toByteArray();
    // Another size than the elements have, and a rank beyond the bytes.
    bytes[5] = 3;
    assertThrows(IllegalArgumentException.class, () -> Tensor.fromByteArray(bytes));
    bytes[1] = 100;
    assertThrows(IllegalArgumentException.class, () -> Tensor.fromByteArray(bytes));
    byte[] huge = {6, 2, 127, -1, -1, -1, 127, -1, -1, -1};
    assertThrows(IllegalArgumentException.class, () -> Tensor.fromByteArray(huge));
  }
}
