//! Pooling over windows: floats on oneDNN, maxima of 8 bits by a kernel of our own.

mod int8;
mod lowest;

use super::copy::Mover;
use super::primitive::{Argument, PrimitiveLauncher, nothing};
use super::region::{fill_box, zero_padding};
use super::scope::{Scope, uniform_forms};
use super::{Answer, Why};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Read};
use crate::network::dtype::DType;
use crate::network::ops::pool;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Form, Kernel, Prepared, Request};
use crate::providers::cpu::handle::{Desc, Options, Pooling, PoolingKind};
use int8::Int8MaxPool;
use lowest::Maxima;

/// MaxPool and AveragePool in every layout.
pub fn offer(scope: &Scope) -> Answer {
    let average = match scope.op() {
        "MaxPool" => false,
        "AveragePool" => true,
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    let small = !average && matches!(ty.dtype, DType::Int8 | DType::UInt8);
    if !small && !matches!(ty.dtype, DType::Float32 | DType::BFloat16) {
        return Err(Why::new(format!("oneDNN does not pool {}", ty.dtype)));
    }
    let attrs = scope.layer().attrs.clone();
    if average && attrs.flag("ceil_mode") && attrs.flag("count_include_pad") {
        return Err(Why::new("oneDNN counts what a last window has beyond the padding"));
    }
    if average && !attrs.flag("count_include_pad") && may_miss(scope, attrs.ints("dilations")) {
        return Err(Why::new("a window of oneDNN may not lie in the padding alone"));
    }
    if ty.rank() > 5 {
        return Err(Why::new("there are more than three spatial axes"));
    }
    let name = scope.op();
    let pool = Pool {
        name,
        attrs,
        average,
        small,
    };
    Ok(vec![scope.alone(pool, &[0])])
}

/// Whether the taps of a window may all lie beside the elements, some of them before and the rest behind.
fn may_miss(scope: &Scope, dilations: &[i64]) -> bool {
    let Some(x) = scope.input_type(0) else {
        return true;
    };
    let extents = x.shape.iter().skip(2).map(|d| d.as_const());
    let fewer = |(&step, extent): (&i64, Option<i64>)| step > 1 && extent.is_none_or(|extent| extent < step);
    dilations.iter().zip(extents).any(fewer)
}

struct Pool {
    name: &'static str,
    attrs: Attrs,
    average: bool,
    /// Whether the numbers have 8 bits.
    small: bool,
}

impl Pool {
    /// What windows give that hold padding alone.
    fn of_nothing(&self, dst: &Operand) -> Prepared {
        let value = match (self.average, self.attrs.contains_key("count_include_pad")) {
            (false, _) => f64::NEG_INFINITY,
            (true, true) if self.attrs.flag("count_include_pad") => 0.0,
            (true, _) => f64::NAN,
        };
        let mut moves = zero_padding(0, dst);
        let value = Array::scalar(dst.dtype, value);
        moves.extend(fill_box(&value, 0, dst, &vec![0; dst.shape.len()], &dst.shape));
        Prepared::new("nothing to pool", Mover::new(moves))
    }
}

impl Kernel for Pool {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.name, self.attrs)
    }

    fn forms(&self) -> Vec<Form> {
        match self.small {
            true => uniform_forms(&[Layout::ChannelsLast], 1, 1),
            false => uniform_forms(&[Layout::ChannelsLast, Layout::Blocked16, Layout::Plain], 1, 1),
        }
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (src, dst) = (&request.inputs[0], &request.outputs[0]);
        if dst.elements() == 0 {
            return Ok(nothing());
        }
        if src.is_empty() {
            return Ok(self.of_nothing(dst));
        }
        let window = pool::window(&self.attrs)?;
        let extent = |shape: &[usize], axis: usize| shape[axis + 2] as i64;
        let (mut begin, mut end) = (vec![], vec![]);
        for axis in 0..window.kernel.len() {
            let (input, output) = (extent(&src.shape, axis), extent(&dst.shape, axis));
            let (before, after) = window.padding(axis, input, output);
            let needed = (output - 1) * window.strides[axis] + window.reach(axis) - input - before;
            if needed > after && self.average && self.attrs.flag("count_include_pad") {
                return Err(Error::unsupported(
                    "the last window reaches beyond the padding that counts",
                ));
            }
            begin.push(before);
            end.push(needed.max(0));
        }
        let spec = Pooling {
            kind: match (
                self.average,
                self.attrs.contains_key("count_include_pad") && self.average,
            ) {
                (false, _) => PoolingKind::Max,
                (true, true) if self.attrs.flag("count_include_pad") => PoolingKind::AverageWithPadding,
                _ => PoolingKind::Average,
            },
            src: Desc::of(src)?,
            dst: Desc::of(dst)?,
            kernel: window.kernel,
            strides: window.strides,
            dilations: window.dilations,
            begin,
            end,
        };
        if self.small {
            return Ok(Int8MaxPool::new(&spec, src, dst, request.threads).prepared());
        }
        let primitive = spec.create(&Options::threads(request.threads))?;
        let pooled = PrimitiveLauncher::new(primitive, vec![Argument::Input(0)]);
        match self.average {
            true => Ok(pooled.prepared()),
            false => Maxima::new(pooled, &spec, src, dst).map(Maxima::prepared),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    fn ints(name: &'static str, values: &[i64]) -> (&'static str, Attr) {
        (name, Attr::Ints(values.to_vec()))
    }

    #[test]
    fn windows_of_an_empty_input_hold_nothing() {
        for (op, count) in [("MaxPool", 0), ("AveragePool", 0), ("AveragePool", 1)] {
            let mut case = Case::new(DType::Float32);
            let x = case.input("2 17 h 9");
            let mut a = attrs([ints("kernel_shape", &[2, 2]), ints("pads", &[1; 4])]);
            if op == "AveragePool" {
                a.insert("count_include_pad".into(), Attr::Int(count));
            }
            let y = case.layer(op, a, &[x]);
            case.output(y).check_fast(&[("h", 0)]);
        }
    }

    #[test]
    fn pools_in_every_layout() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for channels in [1, 3, 16, 17] {
                for (op, ceil, count) in [
                    ("MaxPool", 0, 0),
                    ("MaxPool", 1, 0),
                    ("AveragePool", 1, 0),
                    ("AveragePool", 0, 1),
                ] {
                    let mut case = Case::new(dtype);
                    let x = case.input(&format!("n {channels} h 8"));
                    let mut a = attrs([
                        ints("kernel_shape", &[3, 2]),
                        ints("strides", &[2, 2]),
                        ints("pads", &[1, 0, 1, 1]),
                        ("ceil_mode", Attr::Int(ceil)),
                    ]);
                    if op == "AveragePool" {
                        a.insert("count_include_pad".into(), Attr::Int(count));
                    }
                    let y = case.layer(op, a, &[x]);
                    case.output(y);
                    case.check_fast(&[("n", 2), ("h", 10)]);
                    case.check_fast(&[("n", 0), ("h", 10)]);
                }
            }
        }
    }

    #[test]
    fn integers_of_8_bits() {
        for dtype in [DType::Int8, DType::UInt8] {
            for channels in [3, 16, 35, 64, 150] {
                let mut case = Case::new(dtype);
                let x = case.input(&format!("n {channels} h 8"));
                let a = attrs([
                    ints("kernel_shape", &[3, 2]),
                    ints("strides", &[2, 2]),
                    ints("pads", &[1, 0, 1, 1]),
                ]);
                let y = case.layer("MaxPool", a, &[x]);
                case.output(y).check_fast(&[("n", 2), ("h", 10)]);
            }
        }
    }

    #[test]
    fn integers_of_8_bits_along_one_axis_and_three() {
        for (extents, rank) in [("9", 1), ("h 8 6", 3)] {
            let mut case = Case::new(DType::Int8);
            let x = case.input(&format!("2 70 {extents}"));
            let a = attrs([
                ints("kernel_shape", &vec![2; rank]),
                ints("strides", &vec![2; rank]),
                ints("dilations", &vec![3; rank]),
                ints("pads", &vec![1; 2 * rank]),
            ]);
            let y = case.layer("MaxPool", a, &[x]);
            case.output(y).check_fast(&[("h", 5)]);
        }
    }

    #[test]
    fn windows_without_a_finite_number() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for (channels, pads) in [(3, [0, 0, 0, 0]), (16, [1, 1, 1, 1]), (35, [1, 0, 0, 1])] {
                let mut case = Case::new(dtype);
                let x = case.input(&format!("2 {channels} 6 h"));
                // Minus infinity, and the least finite number, over whole windows.
                let least = case.scalar(if dtype == DType::Float32 {
                    f32::MIN as f64
                } else {
                    half::bf16::MIN.to_f64()
                });
                let (none, half) = (case.scalar(f64::NEG_INFINITY), case.scalar(0.2));
                let low = case.op("Less", &[x, half]);
                let x = case.op("Where", &[low, none, x]);
                let high = case.op("Less", &[half, x]);
                let x = case.op("Where", &[high, least, x]);
                let how = attrs([
                    ints("kernel_shape", &[2, 2]),
                    ints("pads", &pads),
                    ints("dilations", &[1, 2]),
                ]);
                let y = case.layer("MaxPool", how, &[x]);
                case.output(y).check_fast(&[("h", 9)]);
            }
        }
    }

    #[test]
    fn one_and_three_axes() {
        let mut case = Case::new(DType::Float32);
        let x = case.input("1 5 h");
        let y = case.layer("MaxPool", attrs([ints("kernel_shape", &[3])]), &[x]);
        let z = case.input("1 5 h 6 5");
        let w = case.layer("AveragePool", attrs([ints("kernel_shape", &[2, 3, 1])]), &[z]);
        case.output(y).output(w).check_fast(&[("h", 9)]);
    }
}
