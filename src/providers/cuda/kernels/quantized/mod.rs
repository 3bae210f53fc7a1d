//! Convolutions and matrix products of 8 bits: `Dequantize -> product -> ... -> Quantize` as one kernel, which sums integers exactly
//! and does what follows to scaled sums.

mod blocks;
mod borders;
mod constants;
mod found;
mod image;
mod implicit_gemm;
mod linear;
mod plain;
mod rows;
mod shapes;
mod stem;
mod tiled;
mod together;

use super::conv::geometry::Geometry;
use super::matmul::behind::Behind;
use super::matmul::follow;
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::quantization::Scheme;
use crate::network::{Layer, LayerId, Network};
use crate::plan::layout::{Layout, Operand};
use crate::plan::tactic::tactics;
use crate::plan::{Form, Instance, Kernel, Prepared, Request, Tier};
use crate::providers::common::Why;
use crate::providers::common::epilogue::Epilogue;
use crate::providers::common::quantized;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::device::HOPPER;
use crate::providers::cuda::device::memory::DeviceMemory;
use crate::providers::cuda::kernels::matmul::warpgroup::SHAPES;
use crate::providers::cuda::kernels::singles::Single;
use crate::providers::cuda::kernels::spare::get_or_try_init;
use crate::providers::cuda::library::cudnn::Convolution;
use blocks::Blocks;
use constants::Constants;
use found::Found;
use image::Image;
use linear::Linear;
use std::sync::{Arc, OnceLock};
use tiled::TILES;

/// The most spatial axes.
const AXES: usize = 3;

/// Whether a Dequantize layer had better be left to the product behind it, whose weights are constants.
pub fn claims(network: &Network, layer: &Layer) -> bool {
    let held = || {
        let product = network.sole_user(layer.outputs[0])?;
        let product = &network[product];
        let weights = product.inputs.get(1).copied().flatten()?;
        if product.op.name == "ConvTranspose" {
            Blocks::of(&product.attrs, &network[weights].ty.shape)?;
        }
        let (_, weights) = network.producer(weights)?;
        network[weights.inputs[0]?].constant()
    };
    let left = quantized::claims(network, layer, &["Conv", "ConvTranspose", "MatMul"], |_| true);
    (left || quantized::claims_tokens(network, layer)) && held().is_some()
}

/// Conv, ConvTranspose and MatMul of a tensor of 8 bits and constant weights, several that read one tensor before one with what follows, the most first.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let alone = singles(scope, gpu)?.into_iter().map(Single::candidate);
    Ok(together::offer(scope, gpu).into_iter().chain(alone).collect())
}

/// Kernels for the scope's product with what follows, the most first.
fn singles(scope: &Scope, gpu: &Arc<Gpu>) -> std::result::Result<Vec<Single<Quantized>>, Why> {
    let axis = match scope.op() {
        "Conv" | "ConvTranspose" => 1,
        "MatMul" => scope.output_type(0).rank().saturating_sub(1),
        _ => return Ok(vec![]),
    };
    if scope.output_type(0).dtype != DType::Float32 {
        return Ok(vec![]);
    }
    let Some(found) = Found::of(scope) else {
        return Ok(vec![]);
    };
    if let Some(why) = found.refused(gpu) {
        return Err(Why::new(why));
    }
    let epilogues = follow::epilogues_of_8_bits(scope, axis).into_iter();
    let bare = Arc::new(found.constants()?);
    let added = match found.added(scope, axis) {
        Some((add, with)) => Some((add, Arc::new(with.constants()?), with)),
        None => None,
    };
    let image = Image::of(scope.network, &found).filter(|_| found.tokens.is_none());
    let of_epilogue = |epilogue: Epilogue| {
        let layers: Vec<LayerId> = epilogue.layers().collect();
        let (product, constants, add) = match &added {
            Some((add, constants, with)) if layers.contains(add) => (with, constants, Some(*add)),
            _ => (&found, &bare, None),
        };
        let of = |product: &Found| product.single(scope, gpu, constants, axis, add, &layers);
        let quantizing = image.clone().and_then(|image| of(&product.quantizing(image)));
        quantizing.into_iter().chain(of(product))
    };
    Ok(epilogues.flat_map(of_epilogue).collect())
}

/// What is multiplied with what.
#[derive(Clone)]
enum Operation {
    /// Windows of an image.
    Conv(Geometry),
    /// Blocks of the result.
    ConvTranspose(Blocks),
    /// Rows of a matrix; says whether weights have a row for each column of the result.
    MatMul(bool),
}

/// A product of 8 bits with what follows.
struct Quantized {
    name: String,
    operation: Operation,
    /// What the left operand stands for.
    scheme: Scheme,
    /// The dtype of the left operand where that is yet to be quantized.
    image: Option<DType>,
    constants: Arc<Constants>,
    behind: Behind,
    /// What is behind, where that is linear.
    linear: Option<Linear>,
    /// The lists of the constants in the unit of its result, once for all forms.
    lists: OnceLock<Arc<DeviceMemory>>,
    gpu: Arc<Gpu>,
}

tactics! {
    /// A way to compute it.
    enum Way {
        /// By warpgroups that the copy engine brings pixels or rows and spread weights to, in one of the shapes that look best.
        ImplicitGemm(number: u32) = "warpgroups on pixels",
        /// By warpgroups that the copy engine brings rows to, in one of the shapes that look best.
        Rows(number: u32) = "warpgroups on rows",
        /// In one of the tiles that look best.
        Tile(number: u32) = "tile",
        /// So, from patches that are laid out before.
        Patches(number: u32) = "tile of patches",
        /// As numbers of 16 bits, where there are few channels, from pixels as they lie.
        Stem = "few channels",
        /// On plain arithmetic.
        Plain = "plain",
    }
}

impl Quantized {
    fn groups(&self) -> i64 {
        match &self.operation {
            Operation::Conv(geometry) => geometry.attrs.int("group"),
            Operation::ConvTranspose(_) | Operation::MatMul(_) => 1,
        }
    }

    /// Whether pixels can be read from where they lie: so many channels at once, along at most two axes.
    fn reads_pixels(&self) -> bool {
        let (channels, flat) = match &self.operation {
            Operation::Conv(geometry) => (
                geometry.weights[1].as_const().unwrap_or(0),
                geometry.weights.len() <= 4 || geometry.traits(DType::Int8).product,
            ),
            Operation::ConvTranspose(blocks) => (self.constants.terms as i64, blocks.is_even()),
            Operation::MatMul(_) => (self.constants.terms as i64, true),
        };
        flat && channels % 16 == 0
    }

    /// Whether the left operand is rows of a matrix, which warpgroups of this GPU multiply.
    fn reads_rows(&self) -> bool {
        let product = match &self.operation {
            Operation::Conv(geometry) => geometry.traits(DType::Int8).product,
            // Whose kernel gives rows.
            Operation::ConvTranspose(_) => false,
            Operation::MatMul(_) => true,
        };
        product && self.groups() == 1 && self.reads_pixels() && self.gpu.device.capability == HOPPER
    }

    fn ways(&self) -> Vec<Way> {
        if self.image.is_some() {
            return vec![Way::Stem];
        }
        let pixels = match implicit_gemm::fits(self) {
            true => 0..implicit_gemm::SHAPES,
            false => 0..0,
        };
        let rows = match pixels.is_empty() && self.reads_rows() {
            true => 0..SHAPES,
            false => 0..0,
        };
        let tiles: Vec<Way> = match self.groups() {
            1 if self.reads_pixels() => (0..TILES).map(Way::Tile).collect(),
            1 if !self.gives_blocks() => (0..TILES).map(Way::Patches).collect(),
            _ => vec![],
        };
        let stem = self.is_stem().then_some(Way::Stem);
        stem.into_iter()
            .chain(pixels.map(Way::ImplicitGemm))
            .chain(rows.map(Way::Rows))
            .chain(tiles)
            .chain([Way::Plain])
            .collect()
    }

    /// The lists of the constants, in a unit that is so many times smaller: that of the result.
    fn lists(&self, times: f64) -> Result<Arc<DeviceMemory>> {
        let make = || self.constants.lists_on(&self.gpu.device, times).map(Arc::new);
        get_or_try_init(&self.lists, make).cloned()
    }

    fn is_stem(&self) -> bool {
        match &self.operation {
            Operation::Conv(geometry) => stem::fits(geometry, self.constants.terms),
            Operation::ConvTranspose(_) | Operation::MatMul(_) => false,
        }
    }

    /// Whether its rows become blocks of an image.
    fn gives_blocks(&self) -> bool {
        matches!(self.operation, Operation::ConvTranspose(_))
    }

    fn layout(&self) -> Layout {
        match self.operation {
            Operation::Conv(_) | Operation::ConvTranspose(_) => Layout::ChannelsLast,
            Operation::MatMul(_) => Layout::Plain,
        }
    }

    /// The convolution that it is at the shapes of a request.
    fn convolution(&self, request: &Request) -> Result<Convolution> {
        let (x, y) = (&request.inputs[0], &request.outputs[0]);
        match &self.operation {
            Operation::Conv(geometry) => {
                let shape = geometry
                    .weights
                    .iter()
                    .map(|dim| dim.as_const().map(|size| size as usize));
                let shape = shape.collect::<Option<Vec<_>>>();
                let shape = shape.ok_or_else(|| Error::internal("constant weights without a shape"))?;
                let w = Operand::dense(DType::Int8, shape, Layout::ChannelsLast);
                geometry.convolution(
                    &Request {
                        inputs: &[x.clone(), w],
                        ..*request
                    },
                    None,
                )
            }
            Operation::ConvTranspose(blocks) => Ok(blocks.product(x, y)),
            Operation::MatMul(_) => Ok(rows::matrices(x, y)),
        }
    }
}

impl Kernel for Quantized {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let operation = match &self.operation {
            Operation::Conv(Geometry { attrs, weights, .. }) => format!("Conv {attrs:?} {weights:?}"),
            Operation::ConvTranspose(blocks) => format!("ConvTranspose {blocks:?}"),
            Operation::MatMul(_) => format!("MatMul {} {}", self.constants.terms, self.constants.results),
        };
        let padded = self.scheme.zero != 0;
        format!("{} {operation} zero {padded} {}", self.name, self.behind.text)
    }

    fn products_of_8_bits(&self) -> Option<DType> {
        Some(self.scheme.products())
    }

    fn forms(&self) -> Vec<Form> {
        let layout = self.layout();
        let form = |way: Way, from: Layout| {
            let others = self.behind.elements();
            let others = others.map(|element| if element { layout } else { Layout::Plain });
            Form {
                tactic: way.tactic(),
                inputs: std::iter::once(from).chain(others).collect(),
                outputs: vec![layout; self.behind.outputs.len()],
            }
        };
        let ways = self.ways().into_iter().map(|way| form(way, layout));
        // The images of a network lie plain where it gets them.
        let plain = self.is_stem().then(|| form(Way::Stem, Layout::Plain));
        ways.chain(plain).collect()
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        let images = !matches!(self.operation, Operation::MatMul(_));
        // Other operands are read at the places of the result.
        let alone = self.behind.outputs.len() == 1;
        (
            images && !self.behind.elements().any(|element| element),
            images && alone,
        )
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        if request.outputs[0].is_empty() {
            return Ok(Instance::new("nothing to do", |_: &crate::plan::Call| Ok(())).into());
        }
        if request.inputs[0].is_empty() {
            return Err(Error::unsupported("an integer product of an input without elements")
                .hint("give inputs with at least one element in each dimension"));
        }
        let c = self.convolution(request)?;
        let way = Way::of(&request.form.tactic)?;
        let made = match way {
            Way::ImplicitGemm(number) => implicit_gemm::prepared(self, &c, number as usize),
            Way::Rows(number) => rows::prepared(&[self], &c, number as usize),
            Way::Tile(number) => tiled::prepared(self, &c, number as usize),
            Way::Patches(number) => tiled::prepared_from_patches(self, &c, number as usize),
            Way::Stem => Some(stem::prepared(self, &c)),
            Way::Plain => None,
        };
        match (made, way) {
            (Some(made), _) => made,
            (None, Way::Plain) if !plain::is_depthwise(&c) && self.groups() == 1 => {
                Ok(plain::prepared(self, &c)?.with_tier(Tier::Reference))
            }
            (None, Way::Plain) => plain::prepared(self, &c),
            // There is no such tile: it is the same kernel as another form, so it is not timed.
            (None, _) => Ok(plain::prepared(self, &c)?.with_tier(Tier::Reference)),
        }
    }
}
