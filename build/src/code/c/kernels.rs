//! The kernels in C: text files with the parts that they need.

/// A kernel, or a part of kernels.
pub(super) struct Kernel {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// Earlier entries of [`KERNELS`] that it needs.
    needs: &'static [&'static str],
}

macro_rules! kernels {
    ($($name:ident [$($need:ident)*])*) => {
        &[$(Kernel {
            name: stringify!($name),
            text: include_str!(concat!("kernels/", stringify!($name), ".c")),
            needs: &[$(stringify!($need)),*],
        }),*]
    };
}

/// All kernels, each after those that it needs.
const KERNELS: &[Kernel] = kernels! {
    numbers []
    scale []
    results [numbers scale]
    products []
    image []
    window []
    taps [window]
    transposed [window]
    taps_transposed [transposed]
    dsp []
    pairs [dsp]
    widen [dsp]
    requantize [dsp]
    quantize []
    dequantize []
    convolve [image results products]
    convolve_packed [image window pairs widen requantize]
    depthwise [image window results]
    depthwise_packed [image pairs requantize]
    linear [results products]
    linear_packed [pairs widen requantize]
    add [numbers scale]
    add_packed [requantize]
    pool [image window]
    average_pool [pool numbers]
    max_pool [pool numbers]
    softmax [numbers scale]
    pad []
    permute []
    convolve_float []
    relu []
    max_pool_float [image window]
};

/// The kernels with these names and all that they need, in order.
pub(super) fn selected(names: &[&str]) -> Vec<&'static Kernel> {
    let mut selected = Vec::new();
    for kernel in KERNELS.iter().rev() {
        let is_needed = |later: &&Kernel| later.needs.contains(&kernel.name);
        if names.contains(&kernel.name) || selected.iter().any(is_needed) {
            selected.push(kernel);
        }
    }
    selected.reverse();
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_come_after_those_that_they_need() {
        for (at, kernel) in KERNELS.iter().enumerate() {
            for need in kernel.needs {
                let is_earlier = KERNELS[..at].iter().any(|earlier| earlier.name == *need);
                assert!(is_earlier, "{} needs {need}", kernel.name);
            }
        }
    }

    #[test]
    fn only_needed_kernels_are_selected() {
        let names = |names| selected(names).iter().map(|kernel| kernel.name).collect::<Vec<_>>();
        assert_eq!(names(&["dequantize"]), ["dequantize"]);
        assert_eq!(names(&["max_pool"]), ["numbers", "image", "window", "pool", "max_pool"]);
    }
}
