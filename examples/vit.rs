//! A small vision transformer, written with lazy tensors.
//!
//! ```sh
//! cargo run --release --features lazy,safetensors --example vit
//! cargo run --release --features lazy,safetensors,vulkan --example vit -- vulkan
//! ```
//!
//! `tests/export/lazy.py` has the same model in PyTorch. It wrote the weights, and the logits that
//! the example prints next to its own.

use torchlet::Error;
use torchlet::lazy::{Device, Graph, Tensor, Weights};

/// Size of a patch in pixels, and number of heads and blocks.
const PATCH: i64 = 4;
const HEADS: i64 = 2;
const DEPTH: usize = 2;

/// The logits of PyTorch for [`image`].
pub(crate) const EXPECTED: [f32; 5] =
    [0.020_672_478, 0.206_324_8, 0.021_060_05, 0.269_584_24, -0.899_607_06];

/// The model: weights by name, and methods as in PyTorch.
struct VisionTransformer {
    weights: Weights,
}

impl VisionTransformer {
    fn linear(&self, name: &str, x: &Tensor) -> Result<Tensor, Error> {
        let weight = self.weights.get(&format!("{name}.weight"))?;
        x.linear(weight, Some(self.weights.get(&format!("{name}.bias"))?))
    }

    fn norm(&self, name: &str, x: &Tensor) -> Result<Tensor, Error> {
        let weight = self.weights.get(&format!("{name}.weight"))?;
        let bias = self.weights.get(&format!("{name}.bias"))?;
        x.layer_norm(weight.sizes(), Some(weight), Some(bias), 1e-5)
    }

    fn attention(&self, name: &str, x: &Tensor) -> Result<Tensor, Error> {
        let [batch, length, width] = x.sizes()[..] else { unreachable!("three dims") };
        let parts = self.linear(&format!("{name}.qkv"), x)?;
        let parts = parts.reshape([batch, length, 3, HEADS, width / HEADS])?;
        let parts = parts.permute([2, 0, 3, 1, 4])?;
        let (query, key, value) = (parts.i(0)?, parts.i(1)?, parts.i(2)?);
        let x = query.scaled_dot_product_attention(&key, &value, None, 0.0, false, None, false)?;
        let x = x.transpose(1, 2)?.reshape([batch, length, width])?;
        self.linear(&format!("{name}.proj"), &x)
    }

    fn block(&self, name: &str, x: &Tensor) -> Result<Tensor, Error> {
        let attended =
            self.attention(&format!("{name}.attn"), &self.norm(&format!("{name}.norm1"), x)?)?;
        let x = x + attended;
        let hidden =
            self.linear(&format!("{name}.fc1"), &self.norm(&format!("{name}.norm2"), &x)?)?;
        Ok(&x + self.linear(&format!("{name}.fc2"), &hidden.gelu("none")?)?)
    }

    /// The logits of images `[batch, 3, 16, 16]`.
    fn forward(&self, image: &Tensor) -> Result<Tensor, Error> {
        let (weight, bias) =
            (self.weights.get("patch_embed.weight")?, self.weights.get("patch_embed.bias")?);
        let x = image.conv2d(weight, Some(bias), PATCH, 0, 1, 1)?;
        let x = x.flatten(2, -1)?.transpose(1, 2)?;
        let token = self.weights.get("cls_token")?.expand([image.sizes()[0], -1, -1])?;
        let mut x = Tensor::cat([&token, &x], 1)? + self.weights.get("pos_embed")?;
        for number in 0..DEPTH {
            x = self.block(&format!("blocks.{number}"), &x)?;
        }
        self.linear("head", &self.norm("norm", &x)?.i((.., 0))?)
    }
}

/// A deterministic image.
fn image(device: &Device) -> Result<Tensor, Error> {
    let x = device.arange(0, 3 * 16 * 16, 1)?.reshape([1, 3, 16, 16])?;
    Ok((x * 37 % 101).to_dtype(torchlet::ScalarType::Float)? / 101)
}

/// Computes the logits on a device, and saves the model as a program.
pub(crate) fn run(weights: &str, device: &Device) -> Result<Vec<f32>, Error> {
    let model = VisionTransformer { weights: Weights::load(weights, device)? };
    let image = image(device)?;
    // Computed here, so that the saved program has it as its input.
    image.to_tensor()?;
    let logits = model.forward(&image)?;
    let path = std::env::temp_dir().join("torchlet-vit.pte");
    Graph::new(&[&image], &[&logits])?.save(&path)?;
    logits.to_vec()
}

#[allow(dead_code, reason = "a test computes the logits, too")]
fn main() -> Result<(), Error> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    let device = Device::named(&name)?;
    let weights = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lazy/vit.safetensors");
    println!("{device}  {:?}", run(weights, &device)?);
    println!("PyTorch {EXPECTED:?}");
    println!("{:?}, on the CPU: {:?}", device.stats(), device.fallbacks());
    Ok(())
}
