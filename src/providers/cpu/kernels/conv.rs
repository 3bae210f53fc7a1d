//! Convolutions and transposed convolutions with bias, residual and activations, on oneDNN.

use super::chain::{self, Channels};
use super::primitive::{Source, nothing};
use super::scope::Scope;
use super::weighted::{Weighted, lengthened};
use super::winograd::{self, Transformed};
use super::{Answer, Why};
use crate::error::{Error, Result};
use crate::network::attr::{Attrs, Read};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::{conv, conv_transpose};
use crate::plan::layout::{BLOCK, Layout, Operand};
use crate::plan::tactic::tactics;
use crate::plan::{Form, Kernel, Prepared, Request};
use crate::providers::cpu::handle::{self, Desc};
use crate::providers::cpu::simd::Isa;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Conv and ConvTranspose with as much of what follows as the primitive can do, longest first.
pub fn offer(scope: &Scope) -> Answer {
    let transposed = match scope.op() {
        "Conv" => false,
        "ConvTranspose" => true,
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    if !matches!(ty.dtype, DType::Float32 | DType::BFloat16) || ty.rank() > 5 {
        return Ok(vec![]);
    }
    if transposed && !begins_within(scope) {
        return Err(Why::new(
            "oneDNN pads no result of a transposed convolution at its begin",
        ));
    }
    if !transposed && scope.layer().attrs.ints("pads").iter().any(|&pad| pad < 0) {
        return Err(Why::new("oneDNN cuts nothing off what a convolution reads"));
    }
    let epilogues = chain::epilogues(scope, Channels::Second);
    let channels = scope.input_type(0).and_then(|x| x.shape[1].as_const());
    Ok(Weighted::candidates(scope, &epilogues, Channels::Second, |weighted| {
        Conv {
            weighted,
            weights_shape: scope.input_type(1).map(|w| w.shape.clone()).unwrap_or_default(),
            attrs: scope.layer().attrs.clone(),
            few_channels: channels.is_some_and(|c| c <= 4),
            transposed,
            transformed: Mutex::default(),
        }
    }))
}

/// Whether the result of a ConvTranspose begins where the first window does, or later: an `auto_pad` or an
/// `output_shape` may ask for more.
fn begins_within(scope: &Scope) -> bool {
    let (Some(x), Some(w)) = (scope.input_type(0), scope.input_type(1)) else {
        return false;
    };
    let geometry = conv_transpose::geometry(&scope.layer().attrs, &w.shape, &x.shape[2..]);
    geometry.is_ok_and(|(_, _, cuts)| cuts.iter().all(|cut| cut.as_const().is_some_and(|c| c >= 0)))
}

/// Of fewer channels the transforms take longer than tiles save.
const FEWEST_CHANNELS: usize = 32;

struct Conv {
    weighted: Weighted,
    weights_shape: Vec<Dim>,
    attrs: Attrs,
    few_channels: bool,
    transposed: bool,
    /// The weights that are in use in another form than oneDNN's.
    transformed: Mutex<Weak<Transformed>>,
}

tactics! {
    /// How a convolution is computed.
    enum Way {
        /// By a primitive of oneDNN.
        Primitive = "only",
        /// By Winograd's tiles.
        Winograd = "winograd",
    }
}

/// The shape of the weights, and into how many groups they fall.
struct Weights {
    shape: Vec<usize>,
    groups: usize,
}

/// Strides, dilations and padding along each spatial axis.
pub struct Geometry {
    /// Steps.
    pub strides: Vec<i64>,
    /// Spacing of the kernel's elements.
    pub dilations: Vec<i64>,
    /// Padding before.
    pub begin: Vec<i64>,
    /// Padding after.
    pub end: Vec<i64>,
}

impl Conv {
    fn spec(&self, src: &Operand, weights: Weights, dst: &Operand, geometry: Geometry) -> Result<handle::Conv> {
        Ok(handle::Conv {
            src: Desc::of(src)?,
            dst: Desc::of(dst)?,
            weights: weights.shape,
            weights_dtype: src.dtype,
            bias: self.weighted.bias.dtype(),
            groups: weights.groups,
            strides: geometry.strides,
            dilations: geometry.dilations,
            begin: geometry.begin,
            end: geometry.end,
            transposed: self.transposed,
        })
    }

    fn geometry(&self, src: &Operand, dst: &Operand) -> Result<Geometry> {
        geometry(
            &self.attrs,
            &self.weights_shape,
            self.transposed,
            &src.shape,
            &dst.shape,
        )
    }

    /// Whether Winograd's tiles serve the layer: 3x3 over many channels, in steps of 1.
    fn has_tiles(&self) -> bool {
        let Source::Constant(weights) = &self.weighted.weights else {
            return false;
        };
        let source = weights.source();
        let &[k, c, 3, 3] = source.shape() else { return false };
        let ones = |name: &str| self.attrs.ints(name).iter().all(|&step| step == 1);
        let plain = !self.transposed && self.attrs.int("group") == 1 && ones("strides") && ones("dilations");
        let deep = c >= FEWEST_CHANNELS && c % BLOCK == 0 && k % BLOCK == 0;
        let bias = self.weighted.bias.dtype().is_none_or(|dtype| dtype == DType::Float32);
        let single = source.dtype() == DType::Float32 && bias;
        plain && deep && single && Isa::here() == Isa::Avx512 && winograd::is_supported(self.weighted.chain.links())
    }

    /// The weights for tiles, transformed once for all who use them.
    fn transformed(&self, threads: usize) -> Result<Arc<Transformed>> {
        let Source::Constant(weights) = &self.weighted.weights else {
            return Err(Error::internal("the weights of tiles are constant"));
        };
        let mut held = self.transformed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = held.upgrade() {
            return Ok(found);
        }
        let made = Arc::new(Transformed::new(weights.source(), threads)?);
        *held = Arc::downgrade(&made);
        Ok(made)
    }

    fn by_tiles(&self, request: &Request) -> Result<Prepared> {
        let geometry = self.geometry(&request.inputs[0], &request.outputs[0])?;
        let spec = winograd::Spec {
            weights: self.transformed(request.threads)?,
            begin: [0, 1].map(|axis| geometry.begin[axis] as usize),
            bias: &self.weighted.bias,
            links: self.weighted.chain.links(),
            first: self.weighted.first,
        };
        Ok(winograd::prepare(spec, request))
    }

    /// The instance by oneDNN's kernels for these layouts.
    fn by_primitive(&self, request: &Request) -> Result<Prepared> {
        let (src, dst) = (&request.inputs[0], &request.outputs[0]);
        let options = self.weighted.options(request, &dst.shape)?;
        let weights = Weights {
            shape: self.weighted.weights_shape(request).to_vec(),
            groups: self.attrs.int("group") as usize,
        };
        let spec = self.spec(src, weights, dst, self.geometry(src, dst)?)?;
        let format = self.weighted.weights.format();
        let mut primitive = spec.create(format.as_ref(), &options)?;
        if (primitive.is_by_gemm() || primitive.is_reference()) && options.has_relu() {
            primitive = spec.create(format.as_ref(), &options.with_elu())?;
        }
        self.weighted.instance(primitive, request)
    }

    /// The operands in blocks of channels where that is the same memory: those of one pixel, such as a gate for each channel.
    ///
    /// oneDNN's kernels for blocks cut long sums into short ones. Those that it has for channels last add all terms up in
    /// one register, and round as much more; an error of a gate is one of all that it meets.
    fn in_blocks(&self, request: &Request) -> Option<(Vec<Operand>, Operand)> {
        let (src, dst) = (&request.inputs[0], &request.outputs[0]);
        let same = |operand: &Operand| {
            let pixel = operand.shape.len() > 2 && operand.shape[2..].iter().all(|&extent| extent == 1);
            let dense = operand.parent_channels.is_none() && operand.dtype == DType::Float32;
            pixel && dense && operand.shape[1].is_multiple_of(BLOCK)
        };
        let plain = !self.transposed && self.attrs.int("group") == 1 && Isa::here() == Isa::Avx512;
        if !plain || !same(src) || !same(dst) {
            return None;
        }
        let blocked = |operand: &Operand| Operand {
            layout: Layout::Blocked16,
            ..operand.clone()
        };
        let (before, behind) = request.inputs.split_at(self.weighted.first);
        let mut inputs = before.to_vec();
        inputs[0] = blocked(src);
        for operand in behind {
            let full = operand.elements() == dst.elements();
            if full && !same(operand) {
                return None;
            }
            inputs.push(if full { blocked(operand) } else { operand.clone() });
        }
        Some((inputs, blocked(dst)))
    }

    /// The instance for an input without elements: bias, operands and activations are all that there is.
    fn of_zeros(&self, request: &Request) -> Result<Prepared> {
        let (src, dst) = (&request.inputs[0], &request.outputs[0]);
        // Every channel of the result is a sum over channels of the input, of which one is enough.
        let mut one = Operand::dense(src.dtype, lengthened(&src.shape), src.layout);
        one.shape[1] = 1;
        let mut shape = self.weighted.weights_shape(request).to_vec();
        let (m, c) = if self.transposed { (1, 0) } else { (0, 1) };
        (shape[m], shape[c]) = (dst.shape[1], 1);
        let bytes = [one.bytes(), src.dtype.size() * shape.iter().product::<usize>()];
        let options = self.weighted.options(request, &dst.shape)?;
        let mut geometry = self.geometry(src, dst)?;
        for axis in (0..geometry.end.len()).filter(|a| src.shape[a + 2] == 0) {
            geometry.end[axis] += if self.transposed { geometry.strides[axis] } else { -1 };
        }
        let spec = self.spec(&one, Weights { shape, groups: 1 }, dst, geometry)?;
        let primitive = spec.create(None, &options)?;
        self.weighted.instance_of_zeros(primitive, request, bytes)
    }
}

/// The geometry of a convolution with weights of this shape, from an input to a result of these shapes.
///
/// # Errors
/// If the attributes do not fit.
pub fn geometry(attrs: &Attrs, weights: &[Dim], transposed: bool, src: &[usize], dst: &[usize]) -> Result<Geometry> {
    let axes = 0..src.len() - 2;
    if !transposed {
        let window = conv::window(attrs, weights)?;
        let padding = axes.map(|a| window.padding(a, src[a + 2] as i64, dst[a + 2] as i64));
        let (begin, end) = padding.unzip();
        return Ok(Geometry {
            strides: window.strides,
            dilations: window.dilations,
            begin,
            end,
        });
    }
    let sizes: Vec<Dim> = src[2..].iter().map(|&d| d.into()).collect();
    let (window, _, cuts) = conv_transpose::geometry(attrs, weights, &sizes)?;
    let begin: Vec<i64> = cuts.iter().map(|c| c.as_const().unwrap_or(0)).collect();
    let full = |a: usize| (src[a + 2] as i64 - 1) * window.strides[a] + window.reach(a);
    let end = axes.map(|a| full(a) - begin[a] - dst[a + 2] as i64).collect();
    Ok(Geometry {
        strides: window.strides,
        dilations: window.dilations,
        begin,
        end,
    })
}

impl Kernel for Conv {
    fn name(&self) -> String {
        self.weighted.name.clone()
    }

    fn identity(&self) -> String {
        let kind = if self.transposed { "ConvTranspose" } else { "Conv" };
        format!("{kind} {:?} {}", self.attrs, self.weighted.identity())
    }

    fn forms(&self) -> Vec<Form> {
        use Layout::{Blocked16, ChannelsLast, Plain};
        let mut pairs = vec![(ChannelsLast, ChannelsLast), (Blocked16, Blocked16), (Plain, Plain)];
        if self.few_channels && !self.transposed {
            pairs.splice(0..0, [(Plain, Blocked16), (Plain, ChannelsLast)]);
        }
        let mut forms: Vec<Form> = pairs
            .into_iter()
            .map(|(from, to)| self.weighted.form(from, to))
            .collect();
        if self.has_tiles() {
            forms.extend([ChannelsLast, Blocked16].map(|layout| Form {
                tactic: Way::Winograd.tactic(),
                ..self.weighted.form(layout, layout)
            }));
        }
        forms
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        self.weighted.in_place()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (src, dst) = (&request.inputs[0], &request.outputs[0]);
        if dst.elements() == 0 {
            return Ok(nothing());
        }
        if src.is_empty() {
            return self.of_zeros(request);
        }
        if Way::of(&request.form.tactic)? == Way::Winograd {
            return self.by_tiles(request);
        }
        match self.in_blocks(request) {
            Some((inputs, output)) => self.by_primitive(&Request {
                inputs: &inputs,
                outputs: &[output],
                ..*request
            }),
            None => self.by_primitive(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::TensorId;
    use crate::network::attr::{Attr, Attrs, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    fn ints(name: &'static str, values: &[i64]) -> (&'static str, Attr) {
        (name, Attr::Ints(values.to_vec()))
    }

    fn conv(case: &mut Case, x: TensorId, weights: &[usize], attrs: Attrs, bias: bool) -> TensorId {
        let w = case.weights(weights);
        let channels = weights[0];
        let mut inputs = vec![x, w];
        inputs.extend(bias.then(|| case.weights(&[channels])));
        case.layer("Conv", attrs, &inputs)
    }

    #[test]
    fn convolutions_of_every_sort() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for (c, m, group) in [
                (1, 3, 1),
                (3, 17, 1),
                (16, 24, 1),
                (24, 24, 24),
                (32, 48, 4),
                (17, 16, 1),
            ] {
                let mut case = Case::new(dtype);
                let x = case.input(&format!("n {c} h 9"));
                let a = attrs([
                    ("group", Attr::Int(group)),
                    ints("pads", &[1, 0, 1, 2]),
                    ints("strides", &[2, 1]),
                ]);
                let y = conv(&mut case, x, &[m, c / group as usize, 3, 3], a, true);
                case.output(y);
                case.check_fast(&[("n", 2), ("h", 7)]);
                case.check_fast(&[("n", 0), ("h", 5)]);
            }
        }
    }

    #[test]
    fn a_residual_may_lend_its_memory() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for (op, weights) in [("Conv", [24, 17, 3, 3]), ("ConvTranspose", [17, 24, 3, 3])] {
                let mut case = Case::new(dtype);
                let x = case.input("n 17 h 8");
                let skip = case.input(if op == "Conv" { "n 24 h-2 6" } else { "n 24 h+2 10" });
                let w = case.weights(&weights);
                let y = case.layer(op, Attrs::new(), &[x, w]);
                let y = case.op("Add", &[y, skip]);
                let y = case.op("Relu", &[y]);
                case.output(y).check_fast(&[("n", 2), ("h", 7)]);
            }
        }
    }

    #[test]
    fn one_and_three_spatial_axes_and_dilation() {
        let mut case = Case::new(DType::Float32);
        let x = case.input("1 5 h");
        let a = attrs([ints("dilations", &[2])]);
        let y = conv(&mut case, x, &[7, 5, 3], a, false);
        let z = case.input("1 4 h 6 5");
        let w = conv(&mut case, z, &[18, 4, 2, 3, 1], Attrs::new(), true);
        case.output(y).output(w).check_fast(&[("h", 9)]);
    }

    #[test]
    fn residuals_and_activations_are_done_at_once() {
        for dtype in [DType::Float32, DType::BFloat16] {
            let mut case = Case::new(dtype);
            let x = case.input("1 16 h 8");
            let skip = case.input("1 20 h 8");
            let y = conv(&mut case, x, &[20, 16, 1, 1], Attrs::new(), false);
            let shift = case.weights(&[20, 1, 1]);
            let y = case.op("Add", &[y, shift]);
            let y = case.op("Add", &[skip, y]);
            let gate = case.op("Sigmoid", &[y]);
            let y = case.op("Mul", &[gate, y]);
            let scale = case.weights(&[1, 20, 1, 1]);
            let y = case.op("Mul", &[y, scale]);
            case.output(y);
            let names = case.check_fast(&[("h", 5)]);
            assert!(names.contains(&"Conv+Add+Add+Sigmoid+Mul+Mul".into()), "{names:?}");
        }
    }

    #[test]
    fn transposed_convolutions() {
        for (c, m, group, kernel, stride) in [(16, 8, 1, 2, 2), (3, 5, 1, 3, 2), (8, 8, 4, 3, 1), (17, 4, 1, 2, 2)] {
            let mut case = Case::new(DType::Float32);
            let x = case.input(&format!("1 {c} h 5"));
            let w = case.weights(&[c, m / group, kernel, kernel]);
            let b = case.weights(&[m]);
            let pad = kernel as i64 / 2 - (kernel == 2) as i64;
            let a = attrs([
                ("group", Attr::Int(group as i64)),
                ints("strides", &[stride, stride]),
                ints("pads", &[pad; 4]),
                ints("output_padding", &[(stride > 1 && kernel > 2) as i64; 2]),
            ]);
            let y = case.layer("ConvTranspose", a, &[x, w, b]);
            let y = case.op("Relu", &[y]);
            case.output(y).check_fast(&[("h", 6)]);
        }
    }

    #[test]
    fn inputs_without_elements_leave_the_bias() {
        for (op, weights) in [("Conv", [24, 0, 3, 3]), ("ConvTranspose", [0, 24, 3, 3])] {
            let mut case = Case::new(DType::Float32);
            let x = case.input("2 0 h 8");
            let (w, b) = (case.weights(&weights), case.weights(&[24]));
            let y = case.layer(op, Attrs::new(), &[x, w, b]);
            let y = case.op("Sigmoid", &[y]);
            case.output(y).check_fast(&[("h", 7)]);
        }
        let mut case = Case::new(DType::Float32);
        let x = case.input("2 4 h 8");
        let y = conv(
            &mut case,
            x,
            &[6, 2, 3, 3],
            attrs([("group", Attr::Int(2)), ints("pads", &[2; 4])]),
            true,
        );
        case.output(y).check_fast(&[("h", 0)]);
    }

    #[test]
    fn weights_may_come_as_an_input() {
        let mut case = Case::new(DType::Float32);
        let x = case.input("1 4 h 6");
        let w = case.input("5 4 3 3");
        let b = case.input("5");
        let y = case.layer("Conv", Attrs::new(), &[x, w, b]);
        case.output(y).check_fast(&[("h", 7)]);
    }
}
