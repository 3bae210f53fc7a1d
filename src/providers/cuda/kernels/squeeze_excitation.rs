//! Squeeze and excitation: means over the pixels of each channel and the small layers behind them, which make a factor of each channel,
//! and the product with it, in one launch of `squeeze_excitation.cu`.

use super::conv::activation;
use super::conv::direct::{code, numbers};
use super::conv::geometry::Geometry;
use super::launch::{Launches, fields, sourced};
use super::packs::{in_packs, optional, pack};
use super::pointwise::code::element;
use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::ops::{conv, reduce};
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Prepared, Request, Tactic};
use crate::providers::common::epilogue::name;
use crate::providers::common::fn_kernel::FnKernel;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::device::{Grid, HOPPER};
use crate::providers::cuda::library::cudnn::Activation;
use std::sync::Arc;

const SOURCE: &str = concat!(
    include_str!("../../../../kernels/cluster.cuh"),
    include_str!("../../../../kernels/squeeze_excitation.cu")
);
/// `THREADS` of it.
const THREADS: u32 = 512;
/// Blocks that share an image: as many as a cluster has on every GPU with clusters.
const BLOCKS: usize = 8;
/// Bytes of shared memory that a kernel has without asking for more.
const SHARED: usize = 48 << 10;
/// Bytes of an image, at most: eight blocks read no more in the time that launches of more kernels take.
const MOST: i64 = 2 << 20;
/// And where they write as much besides.
const MOST_SCALED: i64 = 512 << 10;

/// Means over pixels with the layers behind them that make a factor of each channel, and with the product behind these.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let found = Excitation::of(scope.network, scope.layer).filter(|_| gpu.device.capability >= HOPPER);
    let scaled = found.as_ref().and_then(|(chain, own)| own.scaled(chain.clone()));
    let found = scaled.into_iter().chain(found);
    Ok(found
        .map(|(chain, own)| own.candidate(scope.network, chain, gpu))
        .collect())
}

/// What the small layers compute.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Small {
    /// Two layers over one pixel, with this between them.
    Dense {
        hidden: usize,
        results: usize,
        inner: Option<Activation>,
        biased: [bool; 2],
    },
    /// A window over neighbouring channels that sees so many on either side.
    Window { halo: usize, biased: bool },
}

/// The layers that one launch runs, and what they read.
#[derive(Debug, Clone)]
struct Chain<'a> {
    network: &'a Network,
    layers: Vec<LayerId>,
    inputs: Vec<TensorId>,
    result: TensorId,
}

impl<'a> Chain<'a> {
    /// The layer that alone reads the result, if it is of this op.
    fn next(&self, op: &str) -> Option<(LayerId, &'a Layer)> {
        let id = self.network.sole_user(self.result)?;
        let layer = &self.network[id];
        (layer.op.name == op && layer.inputs[0] == Some(self.result)).then_some((id, layer))
    }

    fn take(&mut self, id: LayerId) {
        self.layers.push(id);
        self.result = self.network[id].outputs[0];
    }

    /// Takes the activation behind the result, if there is one.
    fn take_activation(&mut self) -> Option<Activation> {
        let id = self.network.sole_user(self.result)?;
        let layer = &self.network[id];
        let found = activation(self.network, layer).filter(|_| layer.inputs[0] == Some(self.result))?;
        self.take(id);
        Some(found)
    }

    /// Takes a Reshape to this shape, if there is one.
    fn take_reshape(&mut self, fits: impl Fn(&[Dim]) -> bool) -> Option<()> {
        let (id, layer) = self.next("Reshape")?;
        let shape = &self.network[layer.outputs[0]].ty.shape;
        fits(shape).then(|| self.take(id))
    }

    /// Takes a Conv that is `read`, by its weights' shape, and says whether it has a bias.
    fn take_conv(&mut self, read: impl Fn(&Layer, &[Dim]) -> Option<usize>) -> Option<(usize, bool)> {
        let (id, layer) = self.next("Conv")?;
        let weights = layer.inputs[1]?;
        let bias = layer.inputs.get(2).copied().flatten();
        let found = read(layer, &self.network[weights].ty.shape)?;
        self.inputs.extend([weights].into_iter().chain(bias));
        self.take(id);
        Some((found, bias.is_some()))
    }
}

/// Squeeze and excitation, at any number of images.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Excitation {
    dtype: DType,
    channels: usize,
    small: Small,
    outer: Option<Activation>,
    /// Whether it gives its input multiplied by the factors, not these.
    scales: bool,
}

impl Excitation {
    /// That which begins with a layer.
    fn of(network: &Network, layer: LayerId) -> Option<(Chain<'_>, Self)> {
        let mean = &network[layer];
        let x = mean.inputs.first().copied().flatten()?;
        let ty = &network[x].ty;
        let floats = [DType::Float32, DType::Float16, DType::BFloat16].contains(&ty.dtype);
        if mean.op.name != "ReduceMean" || ty.rank() < 3 || !floats || !(1..=MOST).contains(&bytes_of_image(ty)?) {
            return None;
        }
        if reduce::axes(&mean.attrs, ty).ok()? != (2..ty.rank()).collect::<Vec<_>>() {
            return None;
        }
        let means = Chain {
            network,
            layers: vec![layer],
            inputs: vec![x],
            result: mean.outputs[0],
        };
        let (mut chain, small) = dense(means.clone()).or_else(|| window(means, &ty.shape[..2]))?;
        let outer = chain.take_activation();
        if let Small::Window { .. } = small {
            // As a factor of each channel.
            let factors = |shape: &[Dim]| {
                shape.len() > 1 && shape[..2] == ty.shape[..2] && shape[2..].iter().all(|dim| dim.is(1))
            };
            chain.take_reshape(factors);
        }
        let own = Self {
            dtype: ty.dtype,
            channels: ty.shape[1].as_const()? as usize,
            small,
            outer,
            scales: false,
        };
        own.fits().then_some((chain, own))
    }

    /// With the product of the input and the factors, if that is all that reads these.
    fn scaled<'a>(self, mut chain: Chain<'a>) -> Option<(Chain<'a>, Self)> {
        let (network, x) = (chain.network, chain.inputs[0]);
        let id = network.sole_user(chain.result)?;
        let layer = &network[id];
        let both = [[Some(x), Some(chain.result)], [Some(chain.result), Some(x)]];
        let whole = network[layer.outputs[0]].ty.shape == network[x].ty.shape;
        if layer.op.name != "Mul" || !both.iter().any(|pair| layer.inputs == pair) || !whole {
            return None;
        }
        let factors = &network[chain.result].ty.shape;
        let each = factors.len() == network[x].ty.rank() && factors[..2] == network[x].ty.shape[..2];
        chain.take(id);
        let own = Self { scales: true, ..self };
        (each && bytes_of_image(&network[x].ty)? <= MOST_SCALED && own.fits()).then_some((chain, own))
    }

    /// Whether a block has memory for what it is sent.
    fn fits(&self) -> bool {
        let (halo, hidden) = match self.small {
            Small::Dense { hidden, .. } => (0, hidden),
            Small::Window { halo, .. } => (halo, 0),
        };
        let factors = if self.scales { self.channels } else { 1 };
        // In packs of eight, as the widest are.
        let held = self.channels.div_ceil(8 * BLOCKS) * 8 + 2 * halo;
        let cells = 8 * THREADS as usize;
        (cells + (BLOCKS + 1) * (held + hidden) + factors) * size_of::<f32>() <= SHARED
    }

    fn candidate(self, network: &Network, chain: Chain, gpu: &Arc<Gpu>) -> Candidate {
        let rank = network[chain.result].ty.rank();
        let form = |output| Form {
            tactic: Tactic::ONLY,
            inputs: [Layout::ChannelsLast]
                .into_iter()
                .chain(chain.inputs[1..].iter().map(|_| Layout::Plain))
                .collect(),
            outputs: vec![output],
        };
        let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
        let fits = |layout: &Layout| layout.fits(rank) && (!self.scales || *layout == Layout::ChannelsLast);
        let forms = layouts.filter(fits).map(form).collect();
        Candidate {
            kernel: Arc::new(self.kernel(&name(network, &chain.layers), forms, gpu)),
            layers: chain.layers,
            inputs: chain.inputs,
            outputs: vec![chain.result],
        }
    }

    fn kernel(self, name: &str, forms: Vec<Form>, gpu: &Arc<Gpu>) -> FnKernel {
        let identity = format!("{:?} {:?} {}", self.small, self.outer, self.scales);
        sourced(name, &identity, forms, gpu, move |gpu: &Gpu, request: &Request| {
            self.prepared(gpu, request)
        })
    }

    fn prepared(&self, gpu: &Gpu, request: &Request) -> Result<Prepared> {
        let shape = &request.inputs[0].shape;
        let pixels: usize = shape[2..].iter().product();
        let inner = match self.small {
            Small::Dense { inner, .. } => inner,
            Small::Window { .. } => None,
        };
        let counts = [pixels, pixels.div_ceil(BLOCKS)].map(|count| count as i64);
        let words = counts.into_iter().chain(numbers(inner)).chain(numbers(self.outer));
        let words = fields(words)?;
        let grid = Grid::over(shape[0] * BLOCKS * THREADS as usize, THREADS)?;
        in_packs(pack(self.dtype, [self.channels]), |pack| {
            let function = gpu.compiler.entry(&self.source(pack), "squeeze_excitation", 0);
            Ok(Launches::one(
                function,
                grid,
                words.clone(),
                format!("{BLOCKS} blocks an image"),
            ))
        })
    }

    /// The source for packs of so many channels.
    fn source(&self, packed: usize) -> String {
        let ty = element(self.dtype).unwrap_or("float");
        let (channels, outer, scales) = (self.channels, code(self.outer), self.scales);
        let (operands, call) = match self.small {
            Small::Dense {
                hidden,
                results,
                inner,
                biased: [first, second],
            } => {
                let units = if packed == 1 { 1 } else { pack(self.dtype, [hidden]) };
                let inner = code(inner);
                (
                    vec![("w1", true), ("b1", first), ("w2", true), ("b2", second)],
                    format!(
                        "excite<{channels}, {hidden}, {results}, {BLOCKS}, {packed}, {units}, {inner}, {outer}, {scales}>"
                    ),
                )
            }
            Small::Window { halo, biased } => (
                vec![("w", true), ("bias", biased)],
                format!("excite_window<{channels}, {halo}, {BLOCKS}, {packed}, {outer}, {scales}>"),
            ),
        };
        let [parameters, arguments] = optional(ty, &operands);
        format!(
            "{SOURCE}\nextern \"C\" __global__ void __cluster_dims__({BLOCKS}, 1, 1) __launch_bounds__({THREADS}) squeeze_excitation({ty}* y, \
             const {ty}* x, {parameters}const Squeeze s) {{\n    after_previous();\n    {call}(y, x, {arguments}, s);\n}}\n"
        )
    }
}

/// Bytes of an image, if they are known.
fn bytes_of_image(ty: &TensorType) -> Option<i64> {
    let extents = ty.shape.get(1..)?.iter().map(Dim::as_const);
    Some(extents.product::<Option<i64>>()? * ty.dtype.size() as i64)
}

/// Takes two layers over one pixel.
fn dense(mut chain: Chain<'_>) -> Option<(Chain<'_>, Small)> {
    let dtype = chain.network[chain.result].ty.dtype;
    // How many results it has.
    let product = |layer: &Layer, weights: &[Dim]| {
        let geometry = Geometry {
            attrs: layer.attrs.clone(),
            weights: weights.to_vec(),
            transposed: false,
        };
        let known = weights.iter().all(|dim| dim.as_const().is_some_and(|size| size > 0));
        let results = weights[0].as_const()? as usize;
        (known && geometry.traits(dtype).product).then_some(results)
    };
    let (hidden, first) = chain.take_conv(product)?;
    let inner = chain.take_activation();
    let (results, second) = chain.take_conv(product)?;
    let small = Small::Dense {
        hidden,
        results,
        inner,
        biased: [first, second],
    };
    Some((chain, small))
}

/// Takes a window over the channels, of which there are so many in so many images.
fn window<'a>(mut chain: Chain<'a>, around: &[Dim]) -> Option<(Chain<'a>, Small)> {
    chain.take_reshape(|shape| shape.len() == 3 && shape[0] == around[0] && shape[1].is(1) && shape[2] == around[1])?;
    let (halo, biased) = chain.take_conv(half)?;
    Some((chain, Small::Window { halo, biased }))
}

/// How many numbers a Conv of one channel sees on either side of each, if it gives as many as it takes.
fn half(layer: &Layer, weights: &[Dim]) -> Option<usize> {
    let window = conv::window(&layer.attrs, weights).ok()?;
    let explicit = layer.attrs.text("auto_pad") == "NOTSET";
    let ([kernel], [begin], [end]) = (&window.kernel[..], &window.begin[..], &window.end[..]) else {
        return None;
    };
    let alone = weights[..2].iter().all(|dim| dim.is(1)) && window.strides == [1] && window.dilations == [1];
    (explicit && alone && begin == end && *kernel == 2 * begin + 1).then_some(*begin as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, Attrs};
    use crate::providers::common::testing::Graph;

    fn ints(name: &str, values: &[i64]) -> Attrs {
        [(name.to_string(), Attr::Ints(values.to_vec()))].into()
    }

    /// What is found behind the first layer that reads `x`: the names of the layers, and what they are.
    fn found(g: &Graph, x: TensorId) -> Option<(String, Excitation)> {
        let (chain, own) = Excitation::of(&g.network, g.network[x].users[0])?;
        Some((name(&g.network, &chain.layers), own))
    }

    /// Means over the pixels of an input of this shape, and the input.
    fn means(g: &mut Graph, shape: &str) -> [TensorId; 2] {
        let x = g.input("x", shape);
        [x, g.op_with("ReduceMean", ints("axes", &[2, 3]), &[x])]
    }

    fn conv(g: &mut Graph, x: TensorId, weights: &[usize], bias: bool) -> TensorId {
        let w = g.weights(weights);
        match bias {
            true => {
                let b = g.weights(&weights[..1]);
                g.op("Conv", &[x, w, b])
            }
            false => g.op("Conv", &[x, w]),
        }
    }

    #[test]
    fn two_layers_over_one_pixel_are_found_with_their_activations() {
        let mut g = Graph::new();
        let [x, mean] = means(&mut g, "batch 32 7 5");
        let squeezed = conv(&mut g, mean, &[4, 32, 1, 1], true);
        let between = g.op("Relu", &[squeezed]);
        let excited = conv(&mut g, between, &[32, 4, 1, 1], false);
        let y = g.op("Sigmoid", &[excited]);
        g.output(y);
        let (layers, own) = found(&g, x).unwrap();
        assert_eq!(layers, "ReduceMean+Conv+Relu+Conv+Sigmoid");
        let small = Small::Dense {
            hidden: 4,
            results: 32,
            inner: Some(Activation::Relu(0.0)),
            biased: [true, false],
        };
        assert_eq!((own.small, own.outer), (small, Some(Activation::Sigmoid)));
        let text = own.source(4);
        assert!(text.contains("const float* w1, const float* b1, const float* w2, const Squeeze s"));
        assert!(text.contains("excite<32, 4, 32, 8, 4, 4, 1, 2, false>(y, x, w1, b1, w2, (const float*)0, s)"));
    }

    fn reshaped(g: &mut Graph, x: TensorId, shape: &[i64]) -> TensorId {
        let shape = g.network.add_constant("", Array::ints(shape));
        g.op("Reshape", &[x, shape])
    }

    /// A window over 24 channels of two images.
    fn mixed(g: &mut Graph, x: TensorId) -> TensorId {
        let (row, w) = (reshaped(g, x, &[2, 1, 24]), g.weights(&[1, 1, 3]));
        g.op_with("Conv", ints("pads", &[1, 1]), &[row, w])
    }

    #[test]
    fn a_window_over_channels_is_found_between_its_reshapes() {
        let mut g = Graph::new();
        let [x, mean] = means(&mut g, "2 24 7 5");
        let mixed = mixed(&mut g, mean);
        let factors = g.op("Sigmoid", &[mixed]);
        let y = reshaped(&mut g, factors, &[2, 24, 1, 1]);
        g.output(y);
        let (layers, own) = found(&g, x).unwrap();
        assert_eq!(layers, "ReduceMean+Reshape+Conv+Sigmoid+Reshape");
        assert_eq!(own.small, Small::Window { halo: 1, biased: false });
        assert!(
            own.source(8)
                .contains("excite_window<24, 1, 8, 8, 2, false>(y, x, w, (const float*)0, s)")
        );
    }

    #[test]
    fn the_product_of_the_input_and_its_factors_belongs_to_it() {
        let scaled = |shape: &str, results: usize| {
            let mut g = Graph::new();
            let [x, mean] = means(&mut g, shape);
            let first = conv(&mut g, mean, &[4, 32, 1, 1], true);
            let factors = conv(&mut g, first, &[results, 4, 1, 1], true);
            let y = g.op("Mul", &[factors, x]);
            g.output(y);
            let (chain, own) = Excitation::of(&g.network, g.network[x].users[0]).unwrap();
            own.scaled(chain)
                .map(|(chain, own)| (chain.result == y, own.source(4).contains("true>(y, x")))
        };
        assert_eq!(scaled("batch 32 7 5", 32), Some((true, true)));
        // A factor of the whole image; images that are too large.
        assert_eq!(scaled("batch 32 7 5", 1), None);
        assert_eq!(scaled("batch 32 90 90", 32), None);
    }

    #[test]
    fn one_layer_over_one_pixel_and_a_window_stay() {
        let mut g = Graph::new();
        let [x, mean] = means(&mut g, "2 24 7 5");
        let squeezed = conv(&mut g, mean, &[24, 24, 1, 1], true);
        let y = mixed(&mut g, squeezed);
        g.output(y);
        assert_eq!(found(&g, x), None);
    }

    #[test]
    fn what_others_read_what_is_wider_and_what_is_too_large_stays() {
        // The means are a result; the second layer sees more than one pixel; an image of more than two million bytes.
        for (shape, shared, kernel, hidden) in [
            ("1 32 7 5", true, 1, 4),
            ("1 32 7 5", false, 3, 4),
            ("1 32 800 40", false, 1, 4),
            ("1 32 height 5", false, 1, 4),
            ("1 32 7 5", false, 1, 4096),
        ] {
            let mut g = Graph::new();
            let [x, mean] = means(&mut g, shape);
            let first = conv(&mut g, mean, &[hidden, 32, 1, 1], true);
            let w = g.weights(&[32, hidden, kernel, kernel]);
            let pads = ints("pads", &[kernel as i64 / 2; 4]);
            let y = g.op_with("Conv", pads, &[first, w]);
            g.output(y);
            if shared {
                g.network.mark_output(mean, "means").unwrap();
            }
            assert_eq!(found(&g, x), None, "{shape} {shared} {kernel} {hidden}");
        }
    }
}
