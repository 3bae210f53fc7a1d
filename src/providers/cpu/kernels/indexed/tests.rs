use crate::network::array::Array;
use crate::network::array::Buffer;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Prepared, Request};
use crate::providers::cpu::kernels::testing::Case;

fn along(axis: i64) -> Attrs {
    attrs([("axis", Attr::Int(axis))])
}

fn ints(dtype: DType, shape: &[usize], values: &[i64]) -> Array {
    Array::from_i64(dtype, shape.to_vec(), values).unwrap()
}

#[test]
fn entries_of_any_axis() {
    for dtype in [DType::Float32, DType::BFloat16, DType::UInt8, DType::Int64] {
        for axis in [0, 1, 2, -1] {
            for h in [6, 0] {
                let mut case = Case::new(dtype);
                let x = case.input("4 h 5 4");
                let indices = if axis == 1 && h == 0 {
                    vec![]
                } else {
                    vec![0, -1, 2, 3, 1, -4]
                };
                let count = indices.len() / 2;
                let indices = case.constant(ints(DType::Int32, &[2, count], &indices));
                let y = case.layer("Gather", along(axis), &[x, indices]);
                case.output(y).check_fast(&[("h", h)]);
            }
        }
    }
}

#[test]
fn indices_that_are_computed() {
    let mut case = Case::new(DType::Float32);
    let x = case.input("9 h");
    let indices = case.input_of(DType::Int64, "3 2");
    let y = case.layer("Gather", along(0), &[x, indices]);
    case.output(y).check_fast(&[("h", 17)]);
    let scalar = case.input_of(DType::Int64, "");
    let z = case.layer("Gather", along(0), &[x, scalar]);
    case.output(z).check_fast(&[("h", 17)]);
}

#[test]
fn elements_and_vectors() {
    for axis in [0, 1] {
        let mut case = Case::new(DType::Float32);
        let x = case.input("5 h 2");
        let indices = case.constant(ints(DType::Int64, &[3, 2, 2], &[0, 4, -1, 2, 1, 3, 0, 0, -5, 4, 2, 2]));
        let y = case.layer("GatherElements", along(axis), &[x, indices]);
        case.output(y).check_fast(&[("h", 5)]);
    }
    for (batch, shape, values) in [
        (0, vec![2, 2], vec![0, 1, 1, -2]),
        (0, vec![3, 1], vec![1, 0, -1]),
        (1, vec![2, 2, 1], vec![0, 1, 2, -1]),
        (0, vec![1, 3], vec![1, 2, 3]),
    ] {
        let mut case = Case::new(DType::Float32);
        let x = case.input("2 h 4");
        let indices = case.constant(ints(DType::Int64, &shape, &values));
        let batch = attrs([("batch_dims", Attr::Int(batch))]);
        let y = case.layer("GatherND", batch, &[x, indices]);
        case.output(y).check_fast(&[("h", 3)]);
    }
}

#[test]
fn updates_replace_or_meet() {
    for reduction in ["none", "add", "mul", "max", "min"] {
        for dtype in [DType::Float32, DType::BFloat16, DType::Int32] {
            let reduction = ("reduction", Attr::Text(reduction.into()));
            let mut case = Case::new(dtype);
            let (x, updates) = (case.input("5 h"), case.input("3 2"));
            let indices = case.constant(ints(DType::Int64, &[3, 2], &[0, 4, -1, 2, 0, 4]));
            let elements = attrs([("axis", Attr::Int(0)), reduction.clone()]);
            let y = case.layer("ScatterElements", elements, &[x, indices, updates]);
            let rows = case.input("3 h");
            let indices = case.constant(ints(DType::Int64, &[3, 1], &[4, 1, 4]));
            let z = case.layer("ScatterND", attrs([reduction]), &[x, indices, rows]);
            case.output(y).output(z).check_fast(&[("h", 7)]);
        }
    }
}

#[test]
fn an_index_out_of_range_is_an_error() {
    let mut case = Case::new(DType::Float32);
    let (x, indices) = (case.input("4 2"), case.input_of(DType::Int64, "3"));
    let y = case.layer("Gather", along(0), &[x, indices]);
    case.output(y);
    let candidate = &case.candidates()[0];
    let operand = |dtype, shape: &[usize]| Operand::dense(dtype, shape.to_vec(), Layout::Plain);
    let request = Request {
        form: &candidate.kernel.forms()[0],
        inputs: &[operand(DType::Float32, &[4, 2]), operand(DType::Int64, &[3])],
        outputs: &[operand(DType::Float32, &[3, 2])],
        binding: &Default::default(),
        opt: &Default::default(),
        threads: 1,
    };
    let mut instance = candidate.kernel.prepare(&request).and_then(Prepared::finish).unwrap();
    let workspace = Buffer::zeroed(instance.workspace);
    let (data, mut out) = ([0f32; 8], [0f32; 6]);
    for bad in [4, -5, i64::MIN, i64::MAX] {
        let indices = [0, bad, 1];
        let error = instance.launch(&Call {
            inputs: &[data.as_ptr().cast(), indices.as_ptr().cast()],
            outputs: &[out.as_mut_ptr().cast()],
            workspace: workspace.as_ptr(),
            stream: std::ptr::null_mut(),
        });
        assert!(error.unwrap_err().to_string().contains("out of range"));
    }
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    for (shape, axis) in [("30000 768", 0), ("512 4096", 1)] {
        let mut case = Case::new(DType::Float32);
        let x = case.input(shape);
        let numbers: Vec<i64> = (0..2048).map(|i| i * 7919 % 4096).collect();
        let indices = case.constant(Array::ints(&numbers));
        let y = case.layer("Gather", along(axis), &[x, indices]);
        case.output(y)
            .report_speed(&format!("Gather {shape} axis {axis} (bytes of all of x counted)"));
    }
}
