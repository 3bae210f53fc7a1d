use super::{
    super::{Eltwise, Matmul, PostOp},
    loops, *,
};

fn matmul(a: &Operand, b: Desc, dst: &Operand) -> Matmul {
    Matmul {
        a: desc(a),
        b,
        bias: None,
        dst: desc(dst),
        pack_b: false,
    }
}

#[test]
fn batches_broadcast() {
    let (a, b) = (Tensor::random(&[2, 3, 5, 7], 1), Tensor::random(&[1, 3, 7, 4], 2));
    let (src, other, dst) = (f32s(&a.shape), f32s(&b.shape), f32s(&[2, 3, 5, 4]));
    let mut primitive = matmul(&src, desc(&other), &dst).create(None, &options()).unwrap();
    run(&mut primitive, &[&a.store(&src), &b.store(&other)], &dst).assert_close(&loops::matmul(&a, &b), 1e-6);
}

#[test]
fn transposed_and_packed_with_bias_and_gelu() {
    let dtypes = [DType::Float32, DType::BFloat16].into_iter();
    for dtype in dtypes.filter(|&dtype| has_all() || dtype == DType::Float32) {
        let (a, b) = (Tensor::random(&[33, 64], 1), Tensor::random(&[64, 48], 2));
        let transposed = Tensor::new(&[48, 64], |at| b.at(&[at[1], at[0]]));
        let bias = Tensor::random(&[1, 48], 3);
        let wanted = loops::matmul(&a, &b).zip(&bias, |x, y| x + y).map(|x| x.max(0.0));
        let (src, dst) = (
            dense(dtype, &a.shape, Layout::Plain),
            dense(dtype, &[33, 48], Layout::Plain),
        );
        let model = dense(dtype, &transposed.shape, Layout::Plain);
        let mut spec = matmul(&src, desc(&model).transposed(), &dst);
        (spec.pack_b, spec.bias) = (true, Some(DType::Float32));
        let relu = options().then(PostOp::Eltwise(Eltwise::Relu { slope: 0.0 }));
        let mut primitive = spec.create(None, &relu).unwrap();
        assert!(!primitive.is_reference());
        let format = primitive.weight_format().unwrap();
        let packed = format.pack(transposed.store(&model).as_ref(), THREADS).unwrap();
        let y = run(
            &mut primitive,
            &[&a.store(&src), &packed, &bias.store(&f32s(&bias.shape))],
            &dst,
        );
        y.assert_close(&wanted, if dtype == DType::Float32 { 1e-6 } else { 1e-2 });
        spec.a = desc(&dense(dtype, &[1, 64], Layout::Plain));
        spec.dst = desc(&dense(dtype, &[1, 48], Layout::Plain));
        let other = spec.create(Some(&format), &relu).unwrap();
        assert!(other.weight_format() == Some(format) && !other.is_reference());
    }
}

#[test]
fn weights_in_the_wrong_size_are_refused() {
    let (src, dst) = (f32s(&[4, 8]), f32s(&[4, 8]));
    let mut spec = matmul(&src, desc(&f32s(&[8, 8])), &dst);
    spec.pack_b = true;
    let format = spec.create(None, &options()).unwrap().weight_format().unwrap();
    assert!(format.pack(&[0; 8], THREADS).is_err());
}
