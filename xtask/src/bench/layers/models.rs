//! Layers of the models on boards.

/// Layers of the 8-bit models on boards that CMSIS-NN also has, with their number. The models also
/// quantize, dequantize and copy data.
pub(super) const MODELS: &[(&str, &[(u64, &str)])] = &[
    (
        "digits_int8",
        &[
            (1, "depthwise 3x3 1-8 8x8"),
            (1, "conv 3x3 8-16 8x8"),
            (1, "largest 2x2/2 16 8x8"),
            (1, "linear 256-10"),
        ],
    ),
    (
        "keyword_spotting",
        &[
            (1, "depthwise 10x4/2 1-64 49x10"),
            (4, "depthwise 3x3 64 25x5"),
            (4, "conv 1x1 64-64 25x5"),
            (1, "average 25x5 64"),
            (1, "linear 64-12"),
        ],
    ),
    (
        "visual_wake_words",
        &[
            (1, "conv 3x3/2 3-8 96x96"),
            (1, "depthwise 3x3 8 48x48"),
            (1, "conv 1x1 8-16 48x48"),
            (1, "depthwise 3x3/2 16 48x48"),
            (1, "conv 1x1 16-32 24x24"),
            (1, "depthwise 3x3 32 24x24"),
            (1, "conv 1x1 32-32 24x24"),
            (1, "depthwise 3x3/2 32 24x24"),
            (1, "conv 1x1 32-64 12x12"),
            (1, "depthwise 3x3 64 12x12"),
            (1, "conv 1x1 64-64 12x12"),
            (1, "depthwise 3x3/2 64 12x12"),
            (1, "conv 1x1 64-128 6x6"),
            (5, "depthwise 3x3 128 6x6"),
            (5, "conv 1x1 128-128 6x6"),
            (1, "depthwise 3x3/2 128 6x6"),
            (1, "conv 1x1 128-256 3x3"),
            (1, "depthwise 3x3 256 3x3"),
            (1, "conv 1x1 256-256 3x3"),
            (1, "average 3x3 256"),
            (1, "linear 256-2"),
        ],
    ),
    (
        "image_classification",
        &[
            (1, "conv 3x3 3-16 32x32"),
            (2, "conv 3x3 16-16 32x32"),
            (1, "sum 16 32x32"),
            (1, "conv 3x3/2 16-32 32x32"),
            (1, "conv 3x3 32-32 16x16"),
            (1, "conv 1x1/2 16-32 32x32"),
            (1, "sum 32 16x16"),
            (1, "conv 3x3/2 32-64 16x16"),
            (1, "conv 3x3 64-64 8x8"),
            (1, "conv 1x1/2 32-64 16x16"),
            (1, "sum 64 8x8"),
            (1, "average 8x8 64"),
            (1, "linear 64-10"),
        ],
    ),
    (
        "anomaly_detection",
        &[
            (1, "linear 640-128"),
            (6, "linear 128-128"),
            (1, "linear 128-8"),
            (1, "linear 8-128"),
            (1, "linear 128-640"),
        ],
    ),
];
