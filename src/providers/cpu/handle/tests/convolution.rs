use super::{
    super::{Binary, Conv, Eltwise, PostOp, WeightFormat},
    loops::{self, Window},
    *,
};
use crate::error::ErrorKind;

struct Case {
    input: Vec<usize>,
    channels: usize,
    groups: usize,
    window: Window,
}

impl Case {
    fn new(input: &[usize], channels: usize, kernel: &[usize]) -> Self {
        Self {
            input: input.to_vec(),
            channels,
            groups: 1,
            window: Window::new(kernel),
        }
    }

    fn padded(mut self, begin: usize, end: usize) -> Self {
        self.window.begin.fill(begin);
        self.window.end.fill(end);
        self
    }

    fn strided(mut self, stride: usize) -> Self {
        self.window.strides.fill(stride);
        self
    }

    fn dilated(mut self, dilation: usize) -> Self {
        self.window.dilations.fill(dilation);
        self
    }

    fn grouped(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    fn output(&self) -> Vec<usize> {
        [
            &[self.input[0], self.channels],
            &self.window.outputs(&self.input[2..])[..],
        ]
        .concat()
    }

    fn weights(&self) -> Vec<usize> {
        [&[self.channels, self.input[1] / self.groups], &self.window.kernel[..]].concat()
    }

    fn spec(&self, src: &Operand, dst: &Operand) -> Conv {
        let signed = |values: &[usize]| values.iter().map(|&value| value as i64).collect::<Vec<_>>();
        Conv {
            src: desc(src),
            dst: desc(dst),
            weights: self.weights(),
            weights_dtype: src.dtype,
            bias: Some(DType::Float32),
            groups: self.groups,
            strides: signed(&self.window.strides),
            dilations: signed(&self.window.dilations),
            begin: signed(&self.window.begin),
            end: signed(&self.window.end),
            transposed: false,
        }
    }

    /// Runs conv, then relu, between two operands, and compares.
    fn check(&self, src: &Operand, dst: &Operand) {
        let (x, w) = (Tensor::random(&self.input, 1), Tensor::random(&self.weights(), 2));
        let bias = Tensor::random(&[self.channels], 3);
        let wanted = loops::conv(&x, &w, &bias, self.groups, &self.window).map(|y| y.max(0.0));
        let relu = PostOp::Eltwise(Eltwise::Relu { slope: 0.0 });
        let mut conv = self.spec(src, dst).create(None, &options().then(relu)).unwrap();
        let weights = w.store(&dense(src.dtype, &self.weights(), Layout::Plain));
        let packed = conv.weight_format().unwrap().pack(weights.as_ref(), THREADS).unwrap();
        let y = run(
            &mut conv,
            &[&x.store(src), &packed, &bias.store(&f32s(&[self.channels]))],
            dst,
        );
        y.assert_close(&wanted, if src.dtype == DType::Float32 { 1e-5 } else { 1e-2 });
    }
}

#[test]
fn every_rank_window_and_grouping() {
    let cases = [
        Case::new(&[2, 32, 9, 7], 48, &[3, 3]).padded(1, 1),
        Case::new(&[1, 3, 20, 20], 32, &[6, 6]).strided(2).padded(2, 2),
        Case::new(&[1, 16, 8, 8], 16, &[3, 3]).padded(0, 2).dilated(2),
        Case::new(&[1, 32, 10, 10], 32, &[3, 3]).padded(1, 1).grouped(32),
        Case::new(&[2, 24, 6, 6], 12, &[1, 1]).grouped(3),
        Case::new(&[1, 20, 17], 10, &[5]).padded(2, 1),
        Case::new(&[1, 16, 5, 6, 7], 16, &[3, 3, 3]).padded(1, 1),
    ];
    for case in &cases {
        for layout in Layout::ALL {
            let dst = dense(DType::Float32, &case.output(), layout);
            case.check(&dense(DType::Float32, &case.input, layout), &dst);
        }
    }
}

#[test]
fn bf16_accumulates_in_f32() {
    if !has_all() {
        return;
    }
    let case = Case::new(&[1, 64, 8, 8], 64, &[3, 3]).padded(1, 1);
    for layout in [Layout::ChannelsLast, Layout::Blocked16] {
        let dst = dense(DType::BFloat16, &case.output(), layout);
        case.check(&dense(DType::BFloat16, &case.input, layout), &dst);
    }
}

#[test]
fn slices_of_larger_tensors() {
    for images in [1, 3] {
        let case = Case::new(&[images, 32, 8, 8], 32, &[3, 3]).padded(1, 1);
        for layout in Layout::ALL {
            let mut src = dense(DType::Float32, &case.input, layout);
            let mut dst = dense(DType::Float32, &case.output(), layout);
            dst.parent_channels = Some(96);
            case.check(&src, &dst);
            src.parent_channels = Some(64);
            case.check(&src, &dst);
            let conv = case.spec(&src, &dst).create(None, &options()).unwrap();
            assert!(!has_all() || conv.is_reference() == (layout == Layout::ChannelsLast));
        }
    }
}

#[test]
fn a_slice_of_a_batch_takes_its_residual_image_by_image() {
    let case = Case::new(&[2, 16, 5, 5], 16, &[1, 1]);
    let dst = dense(DType::Float32, &case.output(), Layout::Blocked16);
    let mut src = dense(DType::Float32, &case.input, Layout::Blocked16);
    src.parent_channels = Some(48);
    let (x, w) = (Tensor::random(&case.input, 1), Tensor::random(&case.weights(), 2));
    let residual = Tensor::random(&dst.shape, 3);
    let scale = Tensor::random(&[1, 16, 1, 1], 4);
    let none = Tensor::new(&[16], |_| 0.0);
    let wanted = loops::conv(&x, &w, &none, 1, &case.window)
        .zip(&residual, |a, b| a + b)
        .zip(&scale, |a, b| a * b);
    let options = options()
        .then(PostOp::Binary(Binary::Add, desc(&dst)))
        .then(PostOp::Binary(
            Binary::Mul,
            Desc::per_channel(DType::Float32, 4, 16).unwrap(),
        ));
    let mut spec = case.spec(&src, &dst);
    spec.bias = None;
    let mut conv = spec.create(None, &options).unwrap();
    let packed = conv
        .weight_format()
        .unwrap()
        .pack(w.store(&f32s(&w.shape)).as_ref(), THREADS)
        .unwrap();
    let scale = scale.store(&f32s(&scale.shape));
    run(
        &mut conv,
        &[&x.store(&src), &packed, &residual.store(&dst), &scale],
        &dst,
    )
    .assert_close(&wanted, 1e-5);
}

#[test]
fn slices_must_be_whole_blocks() {
    let mut uneven = dense(DType::Float32, &[1, 24, 8, 8], Layout::Blocked16);
    uneven.parent_channels = Some(48);
    assert_eq!(Desc::of(&uneven).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_chain_of_post_ops() {
    let case = Case::new(&[1, 16, 6, 6], 32, &[1, 1]);
    let (src, dst) = (dense(DType::Float32, &case.input, Layout::ChannelsLast), case.output());
    let dst = dense(DType::Float32, &dst, Layout::ChannelsLast);
    let (x, w) = (Tensor::random(&case.input, 1), Tensor::random(&case.weights(), 2));
    let bias = Tensor::new(&[32], |_| 0.0);
    let (before, residual) = (Tensor::random(&dst.shape, 4), Tensor::random(&dst.shape, 5));
    let scale = Tensor::random(&[1, 32, 1, 1], 6);
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let wanted = loops::conv(&x, &w, &bias, 1, &case.window)
        .zip(&before, |a, b| a + b)
        .zip(&scale, |a, b| a * b)
        .map(silu)
        .zip(&residual, |a, b| a + b);
    let options = options()
        .then(PostOp::Sum)
        .then(PostOp::Binary(
            Binary::Mul,
            Desc::per_channel(DType::Float32, 4, 32).unwrap(),
        ))
        .then(PostOp::Eltwise(Eltwise::Swish { alpha: 1.0 }))
        .then(PostOp::Binary(Binary::Add, desc(&dst)));
    let mut spec = case.spec(&src, &dst);
    spec.bias = None;
    let mut conv = spec.create(None, &options).unwrap();
    assert!(!conv.is_reference(), "{}", conv.implementation());
    let weights = w.store(&f32s(&w.shape));
    let packed = conv.weight_format().unwrap().pack(weights.as_ref(), THREADS).unwrap();
    let output = before.store(&dst);
    let scale = scale.store(&f32s(&scale.shape));
    run_into(
        &mut conv,
        &[&x.store(&src), &packed, &scale, &residual.store(&dst)],
        &output,
    );
    Tensor::load(&dst, &output).assert_close(&wanted, 1e-5);
}

/// oneDNN may insist on another blocking for a small image: then the weights are packed anew, but never run slowly.
#[test]
fn a_weight_format_serves_other_shapes() {
    let create = |layout, size: usize, given: Option<&WeightFormat>| {
        let case = Case::new(&[1, 64, size, size], 64, &[3, 3]).padded(1, 1);
        let operand = dense(DType::Float32, &case.input, layout);
        case.spec(&operand, &operand).create(given, &options()).unwrap()
    };
    let layouts = [Layout::ChannelsLast, Layout::Blocked16].into_iter();
    for layout in layouts.filter(|&layout| has_all() || layout == Layout::ChannelsLast) {
        let first = create(layout, 56, None).weight_format().unwrap();
        for size in [7, 14, 30, 112] {
            let next = create(layout, size, Some(&first));
            assert!(!next.is_reference(), "{layout} {size}");
            assert!(
                size < 30 || next.weight_format().as_ref() == Some(&first),
                "{layout} {size}"
            );
        }
    }
}

#[test]
fn transposed_with_groups() {
    for (groups, layout) in [(1, Layout::ChannelsLast), (1, Layout::Blocked16), (2, Layout::Plain)] {
        let mut window = Window::new(&[3, 2]);
        (window.strides, window.begin, window.end) = (vec![2, 2], vec![1, 0], vec![0, 0]);
        let (x, w) = (Tensor::random(&[2, 32, 4, 5], 1), Tensor::random(&[32, 16, 3, 2], 2));
        let wanted = loops::conv_transpose(&x, &w, groups, &window);
        let (src, dst) = (
            dense(DType::Float32, &x.shape, layout),
            dense(DType::Float32, &wanted.shape, layout),
        );
        let spec = Conv {
            src: desc(&src),
            dst: desc(&dst),
            weights: w.shape.clone(),
            weights_dtype: DType::Float32,
            bias: None,
            groups,
            strides: vec![2, 2],
            dilations: vec![1, 1],
            begin: vec![1, 0],
            end: vec![0, 0],
            transposed: true,
        };
        let mut conv = spec.create(None, &options()).unwrap();
        let packed = conv
            .weight_format()
            .unwrap()
            .pack(w.store(&f32s(&w.shape)).as_ref(), THREADS)
            .unwrap();
        run(&mut conv, &[&x.store(&src), &packed], &dst).assert_close(&wanted, 1e-5);
    }
}

#[test]
fn what_onednn_refuses_is_unsupported() {
    let case = Case::new(&[1, 16, 8, 8], 16, &[3, 3]).padded(1, 1);
    let src = dense(DType::Int8, &case.input, Layout::ChannelsLast);
    let mut spec = case.spec(&src, &dense(DType::BFloat16, &case.output(), Layout::Plain));
    spec.weights_dtype = DType::Float16;
    let error = spec.create(None, &options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let (mut spec, src) = (case.spec(&src, &src), desc(&f32s(&case.input)));
    (spec.src, spec.strides) = (src, vec![0, 0]);
    assert_eq!(spec.create(None, &options()).err().unwrap().kind(), ErrorKind::Device);
}
