package dev.torchlet;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.Arrays;
import org.junit.Test;

public class EValueTest {
  @Test
  public void valuesKnowTheirType() {
    assertTrue(EValue.optionalNone().isNone());
    assertTrue(EValue.from(true).toBool());
    assertFalse(EValue.from(false).toBool());
    assertEquals(-7, EValue.from(-7L).toInt());
    assertEquals(0.1, EValue.from(0.1).toDouble(), 0);
    assertEquals("text", EValue.from("text").toStr());
    Tensor tensor = Tensor.fromBlob(new int[] {1, 2}, new long[] {2});
    assertEquals(tensor, EValue.from(tensor).toTensor());
    EValue value = EValue.from(3L);
    assertTrue(value.isInt());
    assertFalse(value.isNone() || value.isTensor() || value.isBool());
    assertFalse(value.isDouble() || value.isString());
  }

  @Test
  public void otherTypesAreRefused() {
    EValue[] values = {
      EValue.optionalNone(), EValue.from(true), EValue.from(1L), EValue.from(1.0), EValue.from("1")
    };
    for (EValue value : values) {
      assertThrows(IllegalStateException.class, value::toTensor);
      assertEquals(!value.isBool(), throwsIllegalState(value::toBool));
      assertEquals(!value.isInt(), throwsIllegalState(value::toInt));
      assertEquals(!value.isDouble(), throwsIllegalState(value::toDouble));
      assertEquals(!value.isString(), throwsIllegalState(value::toStr));
    }
    IllegalStateException error =
        assertThrows(IllegalStateException.class, () -> EValue.from(1L).toStr());
    assertEquals("Expected EValue type String, actual type Int", error.getMessage());
  }

  private static boolean throwsIllegalState(Runnable action) {
    try {
      action.run();
      return false;
    } catch (IllegalStateException error) {
      return true;
    }
  }

  @Test
  public void nullsAreRefused() {
    assertThrows(IllegalArgumentException.class, () -> EValue.from((Tensor) null));
    assertThrows(IllegalArgumentException.class, () -> EValue.from((String) null));
  }

  @Test
  public void serializedFormsAreThoseOfExecuTorch() {
    assertArrayEquals(new byte[] {0}, EValue.optionalNone().toByteArray());
    assertArrayEquals(new byte[] {5, 1}, EValue.from(true).toByteArray());
    assertArrayEquals(new byte[] {4, 0, 0, 0, 0, 0, 0, 0, 1}, EValue.from(1L).toByteArray());
    assertArrayEquals(new byte[] {2, 0, 0, 0, 1, 'a'}, EValue.from("a").toByteArray());
    // Type, then dtype, rank, one size and the element.
    byte[] tensor = {1, 4, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9};
    assertArrayEquals(
        tensor, EValue.from(Tensor.fromBlob(new long[] {9}, new long[] {1})).toByteArray());
  }

  @Test
  public void serializedValuesAreReadBack() {
    for (String text : new String[] {"", "a string", "你好，世界", "🙂 and \0"}) {
      assertEquals(text, EValue.fromByteArray(EValue.from(text).toByteArray()).toStr());
    }
    for (long value : new long[] {0, 1, -1, Long.MAX_VALUE, Long.MIN_VALUE}) {
      assertEquals(value, EValue.fromByteArray(EValue.from(value).toByteArray()).toInt());
    }
    assertEquals(
        -1e300, EValue.fromByteArray(EValue.from(-1e300).toByteArray()).toDouble(), 0);
    assertTrue(EValue.fromByteArray(EValue.from(true).toByteArray()).toBool());
    assertTrue(EValue.fromByteArray(EValue.optionalNone().toByteArray()).isNone());
    Tensor tensor = Tensor.fromBlob(new float[] {1, -2, 3.5f}, new long[] {3, 1});
    Tensor read = EValue.fromByteArray(EValue.from(tensor).toByteArray()).toTensor();
    assertArrayEquals(new long[] {3, 1}, read.shape());
    assertArrayEquals(new float[] {1, -2, 3.5f}, read.getDataAsFloatArray(), 0);
  }

  @Test
  public void truncatedBytesAreRefused() {
    EValue[] values = {
      EValue.from(true), EValue.from(1L), EValue.from(1.0), EValue.from("text"),
      EValue.from(Tensor.ones(new long[] {2, 2}, DType.INT32))
    };
    for (EValue value : values) {
      byte[] bytes = value.toByteArray();
      for (int length = 0; length < bytes.length; length++) {
        byte[] part = Arrays.copyOf(bytes, length);
        assertThrows(IllegalArgumentException.class, () -> EValue.fromByteArray(part));
      }
    }
    assertThrows(IllegalArgumentException.class, () -> EValue.fromByteArray(new byte[] {9}));
  }
}
