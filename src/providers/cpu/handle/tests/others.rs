use super::{
    super::{
        Binary, Eltwise, LayerNorm, Pooling, PoolingKind, PostOp, ReductionKind, Resampling, Softmax, pointwise,
        reduction, reorder,
    },
    loops::Window,
    *,
};

#[test]
fn pools() {
    let mut window = Window::new(&[3, 3]);
    (window.strides, window.begin, window.end) = (vec![2, 2], vec![1, 1], vec![1, 1]);
    let x = Tensor::random(&[2, 20, 9, 8], 1);
    let shape = [&x.shape[..2], &window.outputs(&x.shape[2..])[..]].concat();
    for (kind, layout) in [
        (PoolingKind::Max, Layout::Blocked16),
        (PoolingKind::Average, Layout::ChannelsLast),
        (PoolingKind::AverageWithPadding, Layout::Plain),
    ] {
        let wanted = Tensor::new(&shape, |at| {
            let (mut sum, mut most, mut count) = (0.0, f64::NEG_INFINITY, 0);
            window.taps(&at[2..], &x.shape[2..], |_, source| {
                let value = source.map(|s| x.at(&[&at[..2], s].concat()));
                (sum, count) = (sum + value.unwrap_or(0.0), count + usize::from(value.is_some()));
                most = value.unwrap_or(most).max(most);
            });
            match kind {
                PoolingKind::Max => most,
                PoolingKind::Average => sum / count as f64,
                _ => sum / 9.0,
            }
        });
        let (src, dst) = (
            dense(DType::Float32, &x.shape, layout),
            dense(DType::Float32, &shape, layout),
        );
        let of = |value| vec![value; 2];
        let (src_desc, dst_desc) = (desc(&src), desc(&dst));
        let (kernel, strides, dilations, begin, end) = (of(3), of(2), of(1), of(1), of(1));
        let spec = Pooling {
            kind,
            src: src_desc,
            dst: dst_desc,
            kernel,
            strides,
            dilations,
            begin,
            end,
        };
        let mut pool = spec.create(&options()).unwrap();
        run(&mut pool, &[&x.store(&src)], &dst).assert_close(&wanted, 1e-6);
    }
}

#[test]
fn softmax_over_any_axis() {
    let x = Tensor::random(&[3, 5, 7], 1);
    let operand = f32s(&x.shape);
    for (axis, logarithm) in [(2, false), (1, false), (2, true)] {
        let wanted = Tensor::new(&x.shape, |at| {
            let along = |i| {
                let mut there = at.to_vec();
                there[axis] = i;
                x.at(&there).exp()
            };
            let share = x.at(at).exp() / (0..x.shape[axis]).map(along).sum::<f64>();
            if logarithm { share.ln() } else { share }
        });
        let spec = Softmax {
            src: desc(&operand),
            dst: desc(&operand),
            axis,
            logarithm,
        };
        let mut softmax = spec.create(&options()).unwrap();
        run(&mut softmax, &[&x.store(&operand)], &operand).assert_close(&wanted, 1e-5);
    }
}

#[test]
fn layer_norm() {
    let (x, scale, shift) = (
        Tensor::random(&[4, 6, 32], 1),
        Tensor::random(&[32], 2),
        Tensor::random(&[32], 3),
    );
    let wanted = Tensor::new(&x.shape, |at| {
        let row: Vec<_> = (0..32).map(|i| x.at(&[at[0], at[1], i])).collect();
        let mean = row.iter().sum::<f64>() / 32.0;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 32.0;
        (x.at(at) - mean) / (variance + 1e-5).sqrt() * scale.data[at[2]] + shift.data[at[2]]
    });
    let (operand, vector) = (f32s(&x.shape), f32s(&[32]));
    let (src, dst) = (desc(&operand), desc(&operand));
    let mut norm = LayerNorm {
        src,
        dst,
        epsilon: 1e-5,
        scale: true,
        shift: true,
    }
    .create(&options())
    .unwrap();
    let inputs = [&x.store(&operand), &scale.store(&vector), &shift.store(&vector)];
    run(&mut norm, &inputs, &operand).assert_close(&wanted, 1e-5);
}

#[test]
fn nearest_resampling() {
    let x = Tensor::random(&[1, 16, 3, 4], 1);
    let wanted = Tensor::new(&[1, 16, 6, 8], |at| x.at(&[at[0], at[1], at[2] / 2, at[3] / 2]));
    for layout in Layout::ALL {
        let (src, dst) = (
            dense(DType::Float32, &x.shape, layout),
            dense(DType::Float32, &wanted.shape, layout),
        );
        let spec = Resampling {
            src: desc(&src),
            dst: desc(&dst),
            linear: false,
        };
        let mut resample = spec.create(&options()).unwrap();
        run(&mut resample, &[&x.store(&src)], &dst).assert_close(&wanted, 0.0);
    }
}

#[test]
fn pointwise_chains() {
    let (x, y) = (Tensor::random(&[2, 16, 3, 3], 1), Tensor::random(&[1, 16, 1, 1], 2));
    let (operand, other) = (f32s(&x.shape), f32s(&y.shape));
    let tanh = options().then(PostOp::Eltwise(Eltwise::Tanh));
    let first = PostOp::Binary(Binary::Sub, desc(&other));
    let mut chain = pointwise(&desc(&operand), &desc(&operand), &first, &tanh).unwrap();
    let wanted = x.zip(&y, |a, b| (a - b).tanh());
    run(&mut chain, &[&x.store(&operand), &y.store(&other)], &operand).assert_close(&wanted, 1e-5);
    let clip = PostOp::Eltwise(Eltwise::Clip { low: -0.5, high: 0.25 });
    let mut chain = pointwise(&desc(&operand), &desc(&operand), &clip, &tanh).unwrap();
    let wanted = x.map(|a| a.clamp(-0.5, 0.25).tanh());
    run(&mut chain, &[&x.store(&operand)], &operand).assert_close(&wanted, 1e-5);
}

#[test]
fn reductions() {
    let x = Tensor::random(&[2, 16, 5, 5], 1);
    let wanted = Tensor::new(&[2, 16, 1, 1], |at| {
        (0..25).map(|i| x.at(&[at[0], at[1], i / 5, i % 5])).sum::<f64>() / 25.0
    });
    let (src, dst) = (f32s(&x.shape), f32s(&wanted.shape));
    let mut mean = reduction(&desc(&src), &desc(&dst), ReductionKind::Mean, &options()).unwrap();
    run(&mut mean, &[&x.store(&src)], &dst).assert_close(&wanted, 1e-6);
}

#[test]
fn reorders_between_all_layouts_and_floats() {
    let x = Tensor::random(&[2, 20, 5, 3], 1);
    for from in Layout::ALL {
        for to in Layout::ALL {
            for (narrow, wide) in [(DType::Float32, DType::BFloat16), (DType::Float16, DType::Float32)] {
                let (src, dst) = (dense(narrow, &x.shape, from), dense(wide, &x.shape, to));
                let mut copy = reorder(&desc(&src), &desc(&dst), THREADS).unwrap();
                run(&mut copy, &[&x.store(&src)], &dst).assert_close(&x, 0.0);
            }
        }
    }
}

/// A loose bound, on a machine that others use too; what oneDNN itself spends on a call is most of it.
#[test]
fn a_call_costs_little() {
    let operand = f32s(&[1, 8]);
    let relu = PostOp::Eltwise(Eltwise::Relu { slope: 0.0 });
    let mut primitive = pointwise(&desc(&operand), &desc(&operand), &relu, &Options::threads(1)).unwrap();
    let (input, output) = (Tensor::memory(&operand), Tensor::memory(&operand));
    let start = std::time::Instant::now();
    team::run_alone(|| {
        for _ in 0..10_000 {
            // SAFETY: both buffers hold the operand.
            unsafe { primitive.run(&[input.as_ptr()], output.as_ptr(), std::ptr::null_mut()) }?;
        }
        Ok(())
    })
    .unwrap();
    let each = start.elapsed() / 10_000;
    println!("one call: {each:?}");
    assert!(each.as_micros() < 20);
}
