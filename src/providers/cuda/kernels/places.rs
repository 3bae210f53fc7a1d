//! Ops whose elements follow from their places: Range, OneHot, Trilu, ReverseSequence, AffineGrid and Col2Im.

use super::launch::{DeviceCheck, Launches, fields, sourced};
use super::pointwise::code::element;
use super::words::{bits, divisor, pack};
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::attr::{Attr, Attrs, Read};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::spatial::Window;
use crate::plan::Request;
use crate::plan::layout::Layout;
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/places.cu");
/// Threads of a block.
const THREADS: u32 = 256;
/// Axes of an image, at most.
const AXES: usize = 3;

/// Range, OneHot, Trilu, ReverseSequence, AffineGrid and Col2Im.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let (attrs, ty) = (&scope.layer().attrs, scope.output_type(0));
    let (rule, inputs): (Rule, &[usize]) = match scope.op() {
        "Range" => (Rule::Range, &[0, 2]),
        "OneHot" => {
            let axis = ty.axis(attrs.int("axis")).map_err(|e| Why::new(e.message()))?;
            (Rule::OneHot(axis), &[0, 2])
        }
        "Trilu" => (Rule::Trilu(attrs.flag("upper")), &[0, 1]),
        "ReverseSequence" => (Rule::Reverse(attrs.int("time_axis") == 1), &[0, 1]),
        "AffineGrid" => (Rule::AffineGrid(attrs.flag("align_corners")), &[0]),
        "Col2Im" => (Rule::Col2Im(window(scope)?), &[0]),
        _ => return Ok(vec![]),
    };
    let summed = matches!(rule, Rule::Range | Rule::Col2Im(_));
    if summed && (element(ty.dtype).is_none() || ty.dtype == DType::Bool) {
        return Err(Why::new(format!("{} is not computed with", ty.dtype)));
    }
    if let Some(odd) = scope
        .input_type(0)
        .filter(|t| element(t.dtype).is_none() && matches!(rule, Rule::OneHot(_)))
    {
        return Err(Why::new(format!("{} does not count", odd.dtype)));
    }
    let there = inputs.iter().filter(|&&index| scope.input(index).is_some()).count();
    let forms = uniform_forms(&[Layout::Plain], there, 1);
    let identity = format!("{rule:?}");
    let make = move |gpu: &Gpu, request: &Request| rule.launch(gpu, request);
    let kernel = sourced(scope.op(), identity, forms, gpu, make);
    Ok(vec![scope.alone(kernel, inputs)])
}

/// The places of the block that a Col2Im adds up.
fn window(scope: &Scope) -> std::result::Result<Window, Why> {
    let mut attrs: Attrs = scope.layer().attrs.clone();
    attrs.insert("auto_pad".into(), Attr::Text("NOTSET".into()));
    let block: Option<Vec<i64>> = scope
        .value(2)
        .and_then(|block| block.iter().map(Dim::as_const).collect());
    let block = block.ok_or_else(|| Why::new("the shape of the block depends on data"))?;
    if block.len() > AXES {
        return Err(Why::new(format!("an image of {} axes", block.len())));
    }
    Window::read(&attrs, block).map_err(|e| Why::new(e.message()))
}

#[derive(Debug)]
enum Rule {
    Range,
    /// Along this axis of the result.
    OneHot(usize),
    /// Whether the upper triangle is kept.
    Trilu(bool),
    /// Whether steps are counted along axis 1.
    Reverse(bool),
    /// Whether the corners are centres of elements.
    AffineGrid(bool),
    Col2Im(Window),
}

/// What a kernel is called with.
struct Code {
    /// Parameters behind the result, and the function that works on them.
    parameters: String,
    call: String,
    /// The type of the result.
    ty: &'static str,
    /// How many threads there are, and what follows that number in the struct of sizes.
    items: usize,
    words: Vec<i64>,
    device_check: Option<DeviceCheck>,
}

impl Rule {
    fn launch(&self, gpu: &Gpu, request: &Request) -> Result<Launches> {
        let call = match self {
            Rule::Range => range(request),
            Rule::OneHot(axis) => one_hot(*axis, request),
            Rule::Trilu(upper) => trilu(*upper, request),
            Rule::Reverse(second) => reverse(*second, gpu, request)?,
            Rule::AffineGrid(align) => affine_grid(*align, request),
            Rule::Col2Im(window) => col2im(window, request)?,
        };
        let Code {
            parameters, ty, items, ..
        } = &call;
        let source = format!(
            "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) placing({ty}* y, {parameters}) {{\n    \
             {};\n}}\n",
            call.call
        );
        let function = gpu.compiler.entry(&source, "placing", 0);
        let words = fields([&[*items as i64], call.words.as_slice()].concat())?;
        let mut launch = Launches::one(
            function,
            Grid::over(*items, THREADS)?,
            words,
            "elements by their places",
        );
        launch.device_check = call.device_check;
        Ok(launch)
    }
}

fn name(dtype: DType) -> &'static str {
    element(dtype).unwrap_or("float")
}

fn range(request: &Request) -> Code {
    let y = &request.outputs[0];
    let ty = name(y.dtype);
    let narrow = y.dtype.is_float() && y.dtype != DType::Float64;
    let function = if narrow { "narrow_range" } else { "range" };
    Code {
        parameters: format!("const {ty}* start, const {ty}* delta, const Count count"),
        call: format!("{function}<{ty}>(y, start, delta, count)"),
        ty,
        items: y.elements(),
        words: vec![],
        device_check: None,
    }
}

fn one_hot(axis: usize, request: &Request) -> Code {
    let y = &request.outputs[0];
    let inner: usize = y.shape[axis + 1..].iter().product();
    let taken = pack(y.dtype.size(), [inner]);
    let (ty, index) = (bits(y.dtype), name(request.inputs[0].dtype));
    Code {
        parameters: format!("const {index}* indices, const {ty}* values, const Marks marks"),
        call: format!("one_hot<{ty}, {taken}, {index}>(y, indices, values, marks)"),
        ty,
        items: y.elements() / taken,
        words: [divisor(inner / taken), divisor(y.shape[axis])].concat(),
        device_check: None,
    }
}

fn trilu(upper: bool, request: &Request) -> Code {
    let y = &request.outputs[0];
    let ty = bits(y.dtype);
    let [rows, columns] = [2, 1].map(|behind| y.shape[y.shape.len() - behind]);
    let taken = pack(y.dtype.size(), [columns]);
    let (parameter, diagonal) = match request.inputs.get(1) {
        Some(k) => (format!("const {}* k, ", name(k.dtype)), "(int64)*k"),
        None => (String::new(), "0"),
    };
    Code {
        parameters: format!("const {ty}* x, {parameter}const Triangle triangle"),
        call: format!("trilu<{ty}, {taken}>(y, x, {diagonal}, triangle)"),
        ty,
        items: y.elements() / taken,
        words: [&divisor(columns / taken)[..], &divisor(rows), &[upper.into()]].concat(),
        device_check: None,
    }
}

fn reverse(second: bool, gpu: &Gpu, request: &Request) -> Result<Code> {
    let (y, lengths) = (&request.outputs[0], &request.inputs[1]);
    let inner: usize = y.shape[2..].iter().product();
    let taken = pack(y.dtype.size(), [inner]);
    let (ty, length) = (bits(y.dtype), name(lengths.dtype));
    let steps = y.shape[usize::from(second)];
    let meaning = move |found: i64| {
        Error::shape("a sequence length is out of range")
            .expected(format!("0..={steps}"))
            .got(found.to_string())
    };
    Ok(Code {
        parameters: format!("const {ty}* x, const {length}* lengths, const Sequences sequences, int64* flag"),
        call: format!("reverse<{ty}, {taken}, {length}>(y, x, lengths, sequences, flag)"),
        ty,
        items: y.elements() / taken,
        words: [
            &divisor(inner / taken)[..],
            &divisor(y.shape[1]),
            &[steps as i64, second.into()],
        ]
        .concat(),
        device_check: Some(DeviceCheck {
            flag: gpu.device.flag()?,
            meaning: Box::new(meaning),
        }),
    })
}

/// Extents of an image as the last of [`AXES`].
fn image(sizes: &[usize]) -> Vec<usize> {
    [&vec![1; AXES - sizes.len()], sizes].concat()
}

fn affine_grid(align: bool, request: &Request) -> Code {
    let y = &request.outputs[0];
    let axes = y.shape.len() - 2;
    let (ty, sizes) = (name(y.dtype), &y.shape[1..=axes]);
    let places: usize = sizes.iter().product();
    let mut words = divisor(places).to_vec();
    // The kernel counts axes from the first one on.
    let behind = vec![1; AXES - axes];
    words.extend(sizes.iter().chain(&behind).flat_map(|&size| divisor(size)));
    words.push(align.into());
    Code {
        parameters: format!("const {ty}* theta, const Grids grids"),
        call: format!("affine_grid<{ty}, {axes}>(y, theta, grids)"),
        ty,
        items: y.shape[0] * places,
        words,
        device_check: None,
    }
}

fn col2im(window: &Window, request: &Request) -> Result<Code> {
    let (x, y) = (&request.inputs[0], &request.outputs[0]);
    let ty = name(y.dtype);
    let sizes = &y.shape[2..];
    let lead = AXES - sizes.len();
    let places = |axis: usize| window.output(axis, &sizes[axis].into(), false).as_const().unwrap_or(0);
    let places: Vec<i64> = (0..sizes.len()).map(places).collect();
    let taps = window.kernel.iter().product::<i64>() * y.shape[1] as i64;
    if [taps, places.iter().product()] != [x.shape[1] as i64, x.shape[2] as i64] {
        return Err(Error::shape("the columns do not fit the image and the block")
            .expected(format!("[N, {taps}, {}]", places.iter().product::<i64>()))
            .got(format!("{:?}", x.shape)));
    }
    let mut words: Vec<i64> = image(sizes).into_iter().flat_map(divisor).collect();
    let lists = [
        (&window.kernel, 1),
        (&window.strides, 1),
        (&window.dilations, 1),
        (&window.begin, 0),
    ];
    for (list, filler) in lists.into_iter().chain([(&places, 1)]) {
        words.extend(std::iter::repeat_n(filler, lead));
        words.extend(list);
    }
    Ok(Code {
        parameters: format!("const {ty}* x, const __grid_constant__ Columns columns"),
        call: format!("col2im<{ty}>(y, x, columns)"),
        ty,
        items: y.elements(),
        words,
        device_check: None,
    })
}
