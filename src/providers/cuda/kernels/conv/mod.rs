//! Convolutions and transposed ones with bias, residual and activation: in cuDNN's engines, as matrix products, and on
//! kernels of ours.

mod choice;
pub mod cuts;
mod depthwise;
pub mod direct;
mod ending;
mod engines;
pub mod geometry;
mod implicit_gemm;
pub mod left_operand;
mod planes;
pub mod problem;
mod products;
pub mod stem;
pub mod tiled;

use super::tail::Tail;
use super::{Answer, Gpu};
use crate::error::{Error, ErrorKind, Result};
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::plan::layout::{Layout, Operand};
use crate::plan::tactic::tactics;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request};
use crate::providers::common::Why;
use crate::providers::common::cast::cast_before;
use crate::providers::common::epilogue::{Epilogue, behind, name};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::device::HOPPER;
use crate::providers::cuda::library::cudnn::{Activation, After, Convolution, cudnn};
use choice::ENGINES;
use depthwise::Depthwise;
use direct::{AXES, Direct};
use ending::Ending;
use engines::InEngine;
use geometry::{Geometry, Traits};
use implicit_gemm::{Code, SHAPES};
use products::{ALGORITHMS, Multiplied};
use std::sync::Arc;
use stem::Stem;
use tiled::{Plan, TILES, Tiled};

/// Conv and ConvTranspose with as much of what follows as can be done at once, longest first.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let transposed = match scope.op() {
        "Conv" => false,
        "ConvTranspose" => true,
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    if !ty.dtype.is_float() || ty.rank() > AXES + 2 {
        return Err(Why::new(format!("there is no convolution of {}", ty.describe())));
    }
    let [Some(x), Some(w)] = [0, 1].map(|i| scope.input(i)) else {
        return Ok(vec![]);
    };
    let network = scope.network;
    if [x, w].iter().any(|&t| network[t].ty.shape.iter().any(|d| d.is(0))) {
        return Err(Why::new("there is nothing to sum"));
    }
    let geometry = Geometry {
        attrs: scope.layer().attrs.clone(),
        weights: network[w].ty.shape.clone(),
        transposed,
    };
    let mut traits = geometry.traits(ty.dtype);
    /// What the instructions of `stem.cu` and `products.cuh` begin with.
    const TENSOR_CORES: (i32, i32) = (8, 0);
    let half = matches!(ty.dtype, DType::Float16 | DType::BFloat16);
    traits.stem &= half && gpu.device.capability >= TENSOR_CORES;
    traits.tiled &= gpu.device.capability >= TENSOR_CORES;
    let bias = scope.input(2);
    let make = |name: String, tail: &Tail<Activation>, ending: &Ending, cast: bool, code: Option<Code>| Conv {
        name,
        cast,
        code,
        geometry: geometry.clone(),
        held: network[w].constant().is_some(),
        tf32: gpu.rounds_to_tf32(scope),
        bias: bias.is_some(),
        residual: tail.residual.or(ending.residual).is_some(),
        activation: tail.activation,
        after: ending.after(),
        traits,
        gpu: gpu.clone(),
        shapes: [x, scope.layer().outputs[0]].map(|t| network[t].ty.shape.clone()),
    };
    let candidates = |source: TensorId, cast: Option<LayerId>| {
        let one = |epilogue: Epilogue| {
            let tail = Tail::of(network, &epilogue, 0, true, |layer| activation(network, layer));
            let ending = Ending::of(network, &epilogue, &tail);
            let all = tail.steps + ending.steps == epilogue.steps.len() && epilogue.others().is_empty();
            // The kernel for few channels, which casts, adds no residual.
            let takes = all && (cast.is_none() || (tail.residual.is_none() && ending.steps == 0));
            let residual = tail.residual.or(ending.residual);
            let layers: Vec<LayerId> = cast.into_iter().chain([scope.layer]).chain(epilogue.layers()).collect();
            let sides = [bias, residual, ending.scale, ending.shift];
            let sides: Vec<TensorId> = sides.into_iter().flatten().collect();
            takes.then(|| {
                let grouped = traits.tiled && cast.is_none() && gpu.device.capability == HOPPER;
                let code = grouped.then(|| Code::new(network, &epilogue, bias, &sides)).flatten();
                Candidate {
                    kernel: Arc::new(make(name(network, &layers), &tail, &ending, cast.is_some(), code)),
                    layers,
                    inputs: [source, w].into_iter().chain(sides).collect(),
                    outputs: vec![epilogue.result()],
                }
            })
        };
        epilogues(scope).into_iter().filter_map(one).collect::<Vec<_>>()
    };
    let mut found = vec![];
    if let Some((cast, source)) = cast_before(network, x, &[DType::Float32]).filter(|_| traits.stem) {
        found = candidates(source, Some(cast));
    }
    found.extend(candidates(x, None));
    Ok(found)
}

/// What may be done with the scope's convolution.
fn epilogues(scope: &Scope) -> Vec<Epilogue> {
    let network = scope.network;
    let takes =
        |id: LayerId| matches!(network[id].op.name, "Add" | "Mul") || activation(network, &network[id]).is_some();
    behind(scope, scope.layer().outputs[0], 1, &takes)
}

/// The activation of a graph that a layer is.
pub fn activation(network: &Network, layer: &Layer) -> Option<Activation> {
    let double = layer
        .inputs
        .first()
        .copied()
        .flatten()
        .is_some_and(|x| network[x].ty.dtype == DType::Float64);
    // Kernels take a float.
    let exact = |number: f64| (!double || f64::from(number as f32) == number).then_some(number as f32);
    Some(match layer.op.name {
        "Relu" => Activation::Relu(0.0),
        "Clip" => {
            let bound = |at: usize, none: f32| match layer.inputs.get(at).copied().flatten() {
                Some(bound) => exact(network[bound].constant()?.uniform()?),
                None => Some(none),
            };
            Activation::Clip(bound(1, f32::NEG_INFINITY)?, bound(2, f32::INFINITY)?)
        }
        "HardSigmoid" => Activation::HardSigmoid(exact(layer.attrs.float("alpha"))?, exact(layer.attrs.float("beta"))?),
        "HardSwish" => Activation::HardSwish,
        "LeakyRelu" => Activation::Relu(layer.attrs.float("alpha") as f32),
        "Sigmoid" => Activation::Sigmoid,
        "Silu" => Activation::Silu,
        "Tanh" => Activation::Tanh,
        "Gelu" if layer.attrs.text("approximate") != "tanh" => Activation::Gelu,
        _ => return None,
    })
}

tactics! {
    /// A way to compute a convolution.
    enum Way {
        /// In one of cuDNN's engines.
        Engine(number: u32) = "cudnn",
        /// As a matrix product, in one of cuBLASLt's algorithms.
        Product(number: u32) = "cublasLt",
        /// So, from an input that lies channel by channel.
        PlainProduct(number: u32) = "cublasLt of planes",
        /// On the kernel for channels that are convolved each by itself.
        Depthwise = "depthwise",
        /// On the kernel for few channels.
        Stem = "stem",
        /// So, from an input that lies channel by channel.
        PlainStem = "stem of planes",
        /// On the kernel for small convolutions, with one of the tiles that look best.
        Tiled(number: u32) = "tile",
        /// By warpgroups, with one of the shapes of tiles that look best.
        ImplicitGemm(number: u32) = "implicit GEMM",
        /// On the kernel for few channels and few results, which lie channel by channel.
        Planes = "planes",
    }
}

impl Way {
    /// The layouts of input and weights.
    fn layouts(self) -> [Layout; 2] {
        match self {
            Way::PlainProduct(_) | Way::Planes => [Layout::Plain; 2],
            Way::PlainStem => [Layout::Plain, Layout::ChannelsLast],
            _ => [Layout::ChannelsLast; 2],
        }
    }

    /// That of the result, and of what is added to it.
    fn result(self) -> Layout {
        match self {
            Way::Planes => Layout::Plain,
            _ => Layout::ChannelsLast,
        }
    }
}

struct Conv {
    name: String,
    /// Whether its input is float32 and cast on the way.
    cast: bool,
    /// What follows, where warpgroups may multiply.
    code: Option<Code>,
    geometry: Geometry,
    /// Whether the weights are a constant.
    held: bool,
    tf32: bool,
    bias: bool,
    residual: bool,
    activation: Option<Activation>,
    after: After,
    traits: Traits,
    gpu: Arc<Gpu>,
    /// Those of input and result.
    shapes: [Vec<Dim>; 2],
}

impl Conv {
    /// The ways that are tried, the best guess first; the first must be able to run whatever comes.
    fn ways(&self) -> Vec<Way> {
        let Traits {
            depthwise,
            product,
            patches,
            sparse,
            stem,
            tiled,
            planes,
        } = self.traits;
        let stems = [Way::PlainStem, Way::Stem];
        if self.cast {
            return stems.to_vec();
        }
        let mut ways = vec![];
        ways.extend(depthwise.then_some(Way::Depthwise));
        let products = || (0..ALGORITHMS).map(Way::Product);
        let follows = products::follows(self.activation);
        if follows && (product || patches) {
            ways.extend(products());
        }
        if follows && patches {
            ways.extend((0..ALGORITHMS).map(Way::PlainProduct));
        }
        ways.extend((0..ENGINES).map(Way::Engine));
        if follows && sparse {
            ways.extend(products());
        }
        if tiled {
            ways.extend((0..TILES).map(Way::Tiled));
        }
        if self.code.is_some() {
            ways.extend((0..SHAPES).map(Way::ImplicitGemm));
        }
        ways.extend(planes.then_some(Way::Planes));
        // Behind the engines, since it takes longer to compile than a plan takes to build.
        if stem && !self.residual && self.after.is_nothing() {
            ways.extend(stems);
        }
        ways
    }

    fn convolution(&self, request: &Request) -> Result<Convolution> {
        let residual = self.residual.then(|| &request.inputs[2 + usize::from(self.bias)]);
        let mut found = self.geometry.convolution(request, residual)?;
        found.tf32 = self.tf32;
        found.bias = self.bias;
        found.activation = self.activation;
        found.after = self.after;
        Ok(found)
    }
}

impl Conv {
    /// What an engine computes at the shapes to optimise for, by which engines are numbered.
    fn tuned(&self, request: &Request) -> Result<Convolution> {
        let layout = Layout::ChannelsLast;
        let dense = |shape: &[Dim]| {
            let shape = shape.iter().map(|dim| dim.eval(request.opt).map(|size| size as usize));
            Ok::<_, Error>(Operand::dense(
                request.outputs[0].dtype,
                shape.collect::<Result<_>>()?,
                layout,
            ))
        };
        let [x, w, y] = [&self.shapes[0], &self.geometry.weights, &self.shapes[1]].map(|shape| dense(shape));
        let (mut inputs, y) = (vec![x?, w?], y?);
        inputs.resize(2 + usize::from(self.bias), y.clone());
        inputs.extend(self.residual.then(|| y.clone()));
        self.convolution(&Request {
            inputs: &inputs,
            outputs: &[y],
            ..*request
        })
    }

    fn stand_in(&self, request: &Request, convolution: Convolution) -> Result<StandIn> {
        Ok(StandIn {
            gpu: self.gpu.clone(),
            convolution,
            tuned: self.tuned(request)?,
            from: request.inputs[0].dtype,
            direct: self.cast || request.form.inputs[0] == Layout::Plain,
        })
    }
}

impl Kernel for Conv {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let Geometry { attrs, weights, .. } = &self.geometry;
        // Engines are numbered by what this version of the library proposes and we choose of that.
        let version = cudnn().map_or(0, |library| library.version());
        let after = match self.after.is_nothing() {
            true => String::new(),
            false => format!(" {:?}", self.after),
        };
        format!(
            "{} {attrs:?} {weights:?} held {} {:?}{after} tf32 {} ready engines of cuDNN {version}",
            self.name, self.held, self.activation, self.tf32
        )
    }

    fn forms(&self) -> Vec<Form> {
        use Layout::Plain;
        let form = |way: Way| {
            let mut inputs = way.layouts().to_vec();
            inputs.extend(self.bias.then_some(Plain));
            inputs.extend(self.residual.then_some(way.result()));
            inputs.extend(self.after.scale.then_some(Plain));
            inputs.extend(self.after.shift.then_some(Plain));
            Form {
                tactic: way.tactic(),
                inputs,
                outputs: vec![way.result()],
            }
        };
        self.ways().into_iter().map(form).collect()
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        if self.residual {
            vec![(2 + usize::from(self.bias), 0)]
        } else {
            vec![]
        }
    }

    fn takes_slices(&self, form: &Form) -> (bool, bool) {
        let way = Way::of(&form.tactic);
        let takes = matches!(
            way,
            Ok(Way::Engine(_) | Way::Depthwise | Way::Tiled(_) | Way::ImplicitGemm(_))
        );
        (takes, takes)
    }

    fn times_slices(&self, form: &Form) -> bool {
        // Some engines copy slices to where they lie without gaps, and back.
        matches!(Way::of(&form.tactic), Ok(Way::Engine(_)))
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (gpu, convolution, way) = (&self.gpu, self.convolution(request)?, Way::of(&request.form.tactic)?);
        let made = match way {
            Way::Engine(number) => {
                let tuned = self.tuned(request)?;
                return Ok(InEngine::prepared(gpu, convolution, tuned, number as usize));
            }
            Way::Tiled(number) => {
                return Ok(match Plan::new(&gpu.device, &convolution, number as usize) {
                    Some(plan) => Tiled::prepared(gpu, &convolution, &plan, self.held),
                    // What has the number of no engine is not timed, and runs in the first one.
                    None => InEngine::prepared(gpu, convolution, self.tuned(request)?, usize::MAX),
                });
            }
            Way::ImplicitGemm(number) => {
                let code = self.code.as_ref();
                let made = code.and_then(|code| implicit_gemm::prepared(gpu, &convolution, code, self.held, number));
                return match made {
                    Some(made) => made,
                    None => Ok(InEngine::prepared(gpu, convolution, self.tuned(request)?, usize::MAX)),
                };
            }
            Way::Planes => return planes::prepared(gpu, &convolution, self.held),
            Way::Product(number) | Way::PlainProduct(number) => {
                let plain = matches!(way, Way::PlainProduct(_));
                let (gpu, stand_in) = (gpu.clone(), self.stand_in(request, convolution)?);
                return Ok(Prepared::deferred(vec![], move || {
                    let made = Multiplied::new(&gpu, &stand_in.convolution, plain, number as usize);
                    stand_in.unless(made.map(Multiplied::prepared))?.finish()
                }));
            }
            Way::Stem | Way::PlainStem => Stem::new(gpu, &convolution, request.inputs[0].dtype).map(Stem::prepared),
            Way::Depthwise => Depthwise::new(gpu, &convolution, self.held).map(Depthwise::prepared),
        };
        self.stand_in(request, convolution)?.unless(made)
    }
}

/// What runs a convolution that its own way does not take: what was chosen at some shapes has to run at others.
struct StandIn {
    gpu: Arc<Gpu>,
    convolution: Convolution,
    tuned: Convolution,
    from: DType,
    /// Whether no engine takes it as it lies.
    direct: bool,
}

impl StandIn {
    fn unless(self, made: Result<Prepared>) -> Result<Prepared> {
        match made {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            made => return made,
        }
        if self.direct {
            return Direct::new(&self.gpu, &self.convolution, self.from).map(Direct::prepared);
        }
        Ok(InEngine::prepared(&self.gpu, self.convolution, self.tuned, 0))
    }
}
