//! The least numbers that ops give, whatever their inputs are.

/// What an op says of the least number that it gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Least {
    /// Nothing.
    Unknown,
    /// It is this, or more.
    At(f64),
    /// It is zero or more, and nothing is more than one.
    Unit,
    /// It is the negative of an attribute, or more.
    Negative(&'static str),
    /// It is a constant second input, or more; or a constant third one, where that is less.
    Bounds,
    /// It is that of the first input, or zero.
    First,
    /// It is the least of those of all inputs.
    OfAll,
    /// It is the sum of those of all inputs.
    Sum,
    /// It follows from those of the factors: zero where none is negative; that of one, where the others are known to be positive
    /// and no greater than some number.
    Product,
}
