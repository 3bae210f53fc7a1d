//! Convolutions with bias, residual and activation, on cuDNN; on a kernel of our own where it has no engine.

use super::pointwise::code::element;
use super::tail::{Tail, Takes};
use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::Layer;
use crate::network::attr::{Attrs, Read};
use crate::network::dim::Dim;
use crate::network::ops::conv;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::Scope;
use crate::providers::common::view::axes;
use crate::providers::cuda::device::{Arguments, Function, Grid};
use crate::providers::cuda::library::cudnn::{Activation, Convolution, Plan, Tensor};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/conv.cu");
/// So many of cuDNN's engines are timed.
const ENGINES: u32 = 8;
/// Spatial axes that `conv.cu` walks; one or two are the last of these.
const AXES: usize = 3;

/// Conv with as much of what follows as one graph can do, longest first.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "Conv" {
        return Ok(vec![]);
    }
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
    let make = |name: String, tail: &Tail<Activation>| Conv {
        name,
        attrs: scope.layer().attrs.clone(),
        weights: network[w].ty.shape.clone(),
        bias: tail.bias.is_some(),
        residual: tail.residual.is_some(),
        activation: tail.activation,
        gpu: gpu.clone(),
    };
    let takes = Takes {
        // Passes write a bias of channels into the layer.
        bias: |_, _| false,
        activation,
    };
    Ok(Tail::candidates(scope, [x, w], scope.input(2), &takes, make))
}

/// The activation of a graph that a layer is.
fn activation(layer: &Layer) -> Option<Activation> {
    Some(match layer.op.name {
        "Relu" => Activation::Relu(0.0),
        "LeakyRelu" => Activation::Relu(layer.attrs.float("alpha") as f32),
        "Sigmoid" => Activation::Sigmoid,
        "Silu" => Activation::Silu,
        "Tanh" => Activation::Tanh,
        "Gelu" if layer.attrs.text("approximate") != "tanh" => Activation::Gelu,
        _ => return None,
    })
}

struct Conv {
    name: String,
    attrs: Attrs,
    weights: Vec<Dim>,
    bias: bool,
    residual: bool,
    activation: Option<Activation>,
    gpu: Arc<Gpu>,
}

impl Conv {
    fn convolution(&self, request: &Request) -> Result<Convolution> {
        let (x, w, y) = (&request.inputs[0], &request.inputs[1], &request.outputs[0]);
        let window = conv::window(&self.attrs, &self.weights)?;
        let spatial = 0..x.shape.len() - 2;
        let padding = spatial.map(|a| window.padding(a, x.shape[a + 2] as i64, y.shape[a + 2] as i64));
        let (begin, end): (Vec<i64>, Vec<i64>) = padding.unzip();
        let tensor = |operand: &crate::plan::layout::Operand| Tensor {
            sizes: operand.shape.iter().map(|&d| d as i64).collect(),
            strides: axes(operand).strides.iter().map(|&s| s as i64).collect(),
        };
        let mut found = Convolution {
            dtype: y.dtype,
            x: tensor(x),
            w: tensor(w),
            y: tensor(y),
            strides: window.strides,
            dilations: window.dilations,
            begin,
            end,
            bias: self.bias,
            residual: self.residual,
            activation: self.activation,
        };
        if found.strides.len() == 1 {
            found.widen();
        }
        Ok(found)
    }
}

impl Kernel for Conv {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        format!(
            "{} {:?} {:?} {:?}",
            self.name, self.attrs, self.weights, self.activation
        )
    }

    fn forms(&self) -> Vec<Form> {
        use Layout::{ChannelsLast, Plain};
        let mut inputs = vec![ChannelsLast, ChannelsLast];
        inputs.extend(self.bias.then_some(Plain));
        inputs.extend(self.residual.then_some(ChannelsLast));
        let form = |tactic| Form {
            tactic,
            inputs: inputs.clone(),
            outputs: vec![ChannelsLast],
        };
        (0..ENGINES).map(form).collect()
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        if self.residual {
            vec![(2 + usize::from(self.bias), 0)]
        } else {
            vec![]
        }
    }

    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        let convolution = self.convolution(request)?;
        let planned = self
            .gpu
            .dnn()
            .and_then(|dnn| dnn.plan(&convolution, request.form.tactic as usize));
        match planned {
            Ok(plan) => Ok(Box::new(OnDnn {
                gpu: self.gpu.clone(),
                plan,
            })),
            // The first form never fails: what has no engine runs on a kernel of ours.
            Err(_) if request.form.tactic == 0 => Ok(Box::new(Direct::new(&self.gpu, &convolution)?)),
            Err(error) => Err(error),
        }
    }
}

struct OnDnn {
    gpu: Arc<Gpu>,
    plan: Plan,
}

impl Instance for OnDnn {
    fn workspace(&self) -> usize {
        self.plan.workspace()
    }

    fn implementation(&self) -> String {
        "cuDNN".into()
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let mut addresses: Vec<*mut u8> = call.inputs.iter().map(|input| input.cast_mut()).collect();
        addresses.push(call.outputs[0]);
        // SAFETY: the planner gives addresses that hold the operands of the request, in the order of the plan's tensors.
        unsafe { self.gpu.dnn()?.run(&self.plan, &addresses, call.workspace, call.queue) }
    }
}

/// The kernel of `conv.cu`.
struct Direct {
    function: Function,
    shape: Vec<i32>,
    grid: Grid,
    bias: bool,
    residual: bool,
}

impl Direct {
    fn new(gpu: &Gpu, c: &Convolution) -> Result<Self> {
        let ty = element(c.dtype).unwrap_or("float");
        let source = format!(
            "{SOURCE}\nextern \"C\" __global__ void conv({ty}* y, const {ty}* x, const {ty}* w, const {ty}* bias, \
             const {ty}* residual, const Shape shape) {{\n    convolve<{ty}>(y, x, w, bias, residual, shape);\n}}\n"
        );
        const THREADS: u32 = 128;
        let results: i64 = c.y.sizes.iter().product();
        Ok(Self {
            function: gpu.compiler.function(&source, "conv", 0)?,
            shape: words(c),
            grid: Grid {
                blocks: [(results as u64).div_ceil(u64::from(THREADS)) as u32, 1, 1],
                threads: THREADS,
            },
            bias: c.bias,
            residual: c.residual,
        })
    }
}

/// `Shape` of `conv.cu`.
fn words(c: &Convolution) -> Vec<i32> {
    let (code, slope) = match c.activation {
        None => (0, 0.0),
        Some(Activation::Relu(slope)) => (1, slope),
        Some(Activation::Sigmoid) => (2, 0.0),
        Some(Activation::Silu) => (3, 0.0),
        Some(Activation::Tanh) => (4, 0.0),
        Some(Activation::Gelu) => (5, 0.0),
    };
    let (batch, channels, results) = (c.x.sizes[0], c.x.sizes[1], c.y.sizes[1]);
    let groups = channels / c.w.sizes[1];
    let head = [batch, channels, results, groups, c.bias.into(), c.residual.into(), code];
    let mut words: Vec<i32> = head.iter().map(|&n| n as i32).collect();
    words.push(slope.to_bits() as i32);
    let lists: [(&[i64], i64); 6] = [
        (&c.x.sizes[2..], 1),
        (&c.y.sizes[2..], 1),
        (&c.w.sizes[2..], 1),
        (&c.strides, 1),
        (&c.dilations, 1),
        (&c.begin, 0),
    ];
    for (list, missing) in lists {
        words.extend(std::iter::repeat_n(missing as i32, AXES - list.len()));
        words.extend(list.iter().map(|&n| n as i32));
    }
    words
}

impl Instance for Direct {
    fn implementation(&self) -> String {
        "one result a thread".into()
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let mut arguments = Arguments::default();
        arguments
            .address(call.outputs[0])
            .address(call.inputs[0])
            .address(call.inputs[1]);
        let side = |there: bool, at: usize| if there { call.inputs[at] } else { std::ptr::null() };
        arguments
            .address(side(self.bias, 2))
            .address(side(self.residual, 2 + usize::from(self.bias)));
        arguments.fields(&self.shape);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.queue) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    #[test]
    fn fewer_axes_are_the_last_ones() {
        let tensor = |sizes: &[i64]| Tensor {
            sizes: sizes.to_vec(),
            strides: vec![1; sizes.len()],
        };
        let c = Convolution {
            dtype: DType::Float32,
            x: tensor(&[2, 8, 5, 6]),
            w: tensor(&[16, 4, 3, 1]),
            y: tensor(&[2, 16, 5, 6]),
            strides: vec![1, 2],
            dilations: vec![1, 1],
            begin: vec![1, 0],
            end: vec![1, 0],
            bias: true,
            residual: false,
            activation: Some(Activation::Silu),
        };
        let words = words(&c);
        assert_eq!(words[..8], [2, 8, 16, 2, 1, 0, 3, 0]);
        assert_eq!(words[8..], [1, 5, 6, 1, 5, 6, 1, 3, 1, 1, 1, 2, 1, 1, 1, 0, 1, 0]);
    }
}
