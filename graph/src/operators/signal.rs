//! Composite operators of signal processing: windows, short-time Fourier transforms.

use super::describe::*;
use super::*;

operators! {
    signal;
    BARTLETT_WINDOW(WindowArgs {
        window_length: Int, periodic: Bool, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    }) = aten::bartlett_window.periodic;
    BARTLETT_WINDOW_DEFAULT(DefaultWindowArgs {
        window_length: Int, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    }) = aten::bartlett_window.default;
    BLACKMAN_WINDOW(WindowArgs) = aten::blackman_window.periodic;
    BLACKMAN_WINDOW_DEFAULT(DefaultWindowArgs) = aten::blackman_window.default;
    HAMMING_WINDOW(WindowArgs) = aten::hamming_window.periodic;
    HAMMING_WINDOW_ALPHA(AlphaWindowArgs {
        window_length: Int, periodic: Bool, alpha: Float, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    }) = aten::hamming_window.periodic_alpha;
    HAMMING_WINDOW_ALPHA_BETA(AlphaBetaWindowArgs {
        window_length: Int, periodic: Bool, alpha: Float, beta: Float,
        dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    }) = aten::hamming_window.periodic_alpha_beta;
    HAMMING_WINDOW_DEFAULT(DefaultWindowArgs) = aten::hamming_window.default;
    HANN_WINDOW(WindowArgs) = aten::hann_window.periodic;
    HANN_WINDOW_DEFAULT(DefaultWindowArgs) = aten::hann_window.default;
    KAISER_WINDOW(WindowArgs) = aten::kaiser_window.periodic;
    KAISER_WINDOW_BETA(KaiserWindowArgs {
        window_length: Int, periodic: Bool, beta: Float, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    }) = aten::kaiser_window.beta;
    KAISER_WINDOW_DEFAULT(DefaultWindowArgs) = aten::kaiser_window.default;
    STFT(StftArgs {
        input: Tensor, n_fft: Int, hop_length: OptionalInt = None, win_length: OptionalInt = None,
        window: OptionalTensor = None, normalized: Bool = false, onesided: OptionalBool = None,
        return_complex: OptionalBool = None, align_to_window: OptionalBool = None
    }) = aten::stft.default;
    STFT_CENTER(StftCenterArgs {
        input: Tensor, n_fft: Int, hop_length: OptionalInt = None, win_length: OptionalInt = None,
        window: OptionalTensor = None, center: Bool = true, pad_mode: Str = "reflect",
        normalized: Bool = false, onesided: OptionalBool = None,
        return_complex: OptionalBool = None, align_to_window: OptionalBool = None
    }) = aten::stft.center;
}
