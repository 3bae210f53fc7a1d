use super::*;

fn dim(text: &str) -> Dim {
    text.parse().unwrap()
}

#[test]
fn equal_expressions_meet_in_one_form() {
    for (a, b) in [
        ("2*(n)", "n + n"),
        ("floordiv(2*n + 4, 2)", "n + 2"),
        ("floordiv(floordiv(h, 2), 2)", "floordiv(h, 4)"),
        ("ceildiv(h, 2)", "floordiv(h + 1, 2)"),
        ("mod(4*n + 3, 4)", "3"),
        ("max(n, n + 1)", "n + 1"),
        ("min(a, b)", "min(b, a)"),
        (
            "broadcast(broadcast(c, a), broadcast(b, a))",
            "broadcast(a, broadcast(b, c))",
        ),
        ("broadcast(a, 1)", "a"),
        ("broadcast(a, 3)", "3"),
        ("floordiv(n*h, h)", "n"),
    ] {
        let (a, b) = (a.replace("(n)", "n"), b);
        assert_eq!(dim(&a), dim(b), "{a} = {b}");
    }
    assert_ne!(dim("floordiv(h, 2)*2"), dim("h"));
}

/// Twenty times its own third added: 3 to the power of 20 symbols, were it written out.
#[test]
fn an_expression_that_doubles_is_given_up_and_stays_so() {
    let grow = |step: &dyn Fn(Dim) -> Dim| (0..80).fold(dim("n"), |g, _| step(g));
    let third = |g: &Dim| (g.clone() - 1i64.into()).ceildiv(&dim("m"));
    let steps: [&dyn Fn(Dim) -> Dim; 5] = [
        &|g| g.floordiv(&3i64.into()) + g,
        &|g| g.clone() * g,
        &|g| third(&g).least(&(g * 2i64.into())),
        &|g| (g.clone() + dim("k")) * (g + dim("l")),
        &|g| g.least(&dim("k")) + 1i64.into(),
    ];
    for (number, step) in steps.into_iter().enumerate() {
        let long = grow(step);
        assert!(long.is_too_long(), "{number}: {}", long.atoms());
        let one: Dim = 1i64.into();
        let further = [
            long.clone() - long.clone(),
            long.floordiv(&long),
            long.floordiv(&one),
            one.ceildiv(&long),
            long.greatest(&one),
            -long.clone(),
            long.substitute(&|_| Some(7i64.into())),
        ];
        assert!(further.iter().all(Dim::is_too_long), "{number}: {further:?}");
        assert!(long.eval(&Binding::from([("n".into(), 1)])).is_err());
        assert_eq!(long.bounds(&Symbols::new()), (i64::MIN, i64::MAX));
    }
}

#[test]
fn evaluation_and_bounds_agree() {
    let symbols = Symbols::from([("h".into(), Range { min: 1, opt: 5, max: 9 })]);
    for text in [
        "3*h - 2",
        "floordiv(h + 1, 2)",
        "h*h - h",
        "min(h, 4) + max(h, 6)",
        "ceildiv(20, h)",
    ] {
        let (low, high) = dim(text).bounds(&symbols);
        for h in 1..=9 {
            let value = dim(text).eval(&Binding::from([("h".into(), h)])).unwrap();
            assert!(
                low <= value && value <= high,
                "{text} at {h}: {low} <= {value} <= {high}"
            );
        }
    }
}

#[test]
fn what_broadcasting_gives_is_the_one_that_is_not_1() {
    let both = dim("broadcast(a, broadcast(b, c))");
    for (a, b, c, want) in [
        (5, 5, 5, 5),
        (1, 5, 1, 5),
        (1, 1, 7, 7),
        (4, 1, 4, 4),
        (1, 1, 1, 1),
        (0, 1, 1, 0),
    ] {
        let binding = Binding::from([("a".into(), a), ("b".into(), b), ("c".into(), c)]);
        assert_eq!(both.eval(&binding).unwrap(), want, "{a} {b} {c}");
    }
    let one = |name: &str| (name == "a").then(|| Dim::from(1i64));
    assert_eq!(both.substitute(&one), dim("broadcast(b, c)"));
    assert_eq!(both.operands(), ["a", "b", "c"].map(dim));
}
