package dev.torchlet;

/** Element types of tensors. The codes are those of ExecuTorch's {@code ScalarType}. */
public enum DType {
  UINT8(0, 1, "uint8"),
  INT8(1, 1, "int8"),
  INT16(2, 2, "int16"),
  INT32(3, 4, "int32"),
  INT64(4, 8, "int64"),
  HALF(5, 2, "float16"),
  FLOAT(6, 4, "float32"),
  DOUBLE(7, 8, "float64"),
  COMPLEX_HALF(8, 4, "complex32"),
  COMPLEX_FLOAT(9, 8, "complex64"),
  COMPLEX_DOUBLE(10, 16, "complex128"),
  BOOL(11, 1, "bool"),
  QINT8(12, 1, "qint8"),
  QUINT8(13, 1, "quint8"),
  QINT32(14, 4, "qint32"),
  BFLOAT16(15, 2, "bfloat16"),
  QINT4X2(16, 1, "quint4x2"),
  QINT2X4(17, 1, "quint2x4"),
  BITS1X8(18, 1, "bits1x8"),
  BITS2X4(19, 1, "bits2x4"),
  BITS4X2(20, 1, "bits4x2"),
  BITS8(21, 1, "bits8"),
  BITS16(22, 2, "bits16"),
  FLOAT8_E5M2(23, 1, "float8_e5m2"),
  FLOAT8_E4M3FN(24, 1, "float8_e4m3fn"),
  FLOAT8_E5M2FNUZ(25, 1, "float8_e5m2fnuz"),
  FLOAT8_E4M3FNUZ(26, 1, "float8_e4m3fnuz"),
  UINT16(27, 2, "uint16"),
  UINT32(28, 4, "uint32"),
  UINT64(29, 8, "uint64");

  private static final DType[] ALL = values();

  /** Number of the type in program files. */
  public final int jniCode;

  private final int size;
  private final String torchName;

  DType(int jniCode, int size, String torchName) {
    this.jniCode = jniCode;
    this.size = size;
    this.torchName = torchName;
  }

  /** Size of an element in bytes. */
  public int elementSize() {
    return size;
  }

  /** PyTorch's name of the type, such as {@code float32}. */
  public String torchName() {
    return torchName;
  }

  /**
   * Returns the type with this code.
   *
   * @throws IllegalArgumentException if no type has it
   */
  public static DType fromJniCode(int jniCode) {
    if (jniCode < 0 || jniCode >= ALL.length) {
      throw new IllegalArgumentException("No DType found for jniCode " + jniCode);
    }
    return ALL[jniCode];
  }
}
