//! What each element of a result stands for along one axis.

/// What stands outside of the source; the numbers are those of `boxes.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    Filled,
    Edge,
    Reflected,
    Wrapped,
}

/// `Axis` of `boxes.cu`.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Elements of the result.
    pub size: usize,
    /// Elements of the source.
    pub extent: usize,
    /// The place in the source of the first element of the result.
    pub first: i64,
    /// From one to the next.
    pub step: i64,
    /// What stands outside.
    pub border: Border,
    /// Stride in the result.
    pub to: usize,
    /// Stride in the source.
    pub from: usize,
}

impl Axis {
    /// An axis that begins with the first element.
    pub fn whole(extent: usize, size: usize, to: usize, from: usize) -> Self {
        Self {
            size,
            extent,
            first: 0,
            step: 1,
            border: Border::Filled,
            to,
            from,
        }
    }

    /// From a place on in steps; it is counted and clamped as ONNX says.
    pub fn sliced(self, start: i64, step: i64) -> Self {
        let extent = self.extent as i64;
        let place = if start < 0 { start.saturating_add(extent) } else { start };
        let first = place.clamp(0, if step > 0 { extent } else { (extent - 1).max(0) });
        // Of one element, no step is taken, however long.
        let step = if self.size > 1 { step } else { 1 };
        Self { first, step, ..self }
    }

    /// With so many elements before the first one.
    pub fn padded(self, before: i64, border: Border) -> Self {
        let first = -before;
        // Nothing is outside of what is cut off at both ends.
        let inside = first >= 0 && first + self.size as i64 <= self.extent as i64;
        let border = if inside { Border::Filled } else { border };
        Self { first, border, ..self }
    }

    /// As often as it fits.
    pub fn repeated(self) -> Self {
        match (self.extent, self.size) {
            (1, size) => Self {
                extent: size,
                from: 0,
                ..self
            },
            (extent, size) if extent == size => self,
            _ => Self {
                border: Border::Wrapped,
                ..self
            },
        }
    }

    fn is_whole(&self) -> bool {
        self.first == 0 && self.step == 1 && self.size == self.extent
    }

    /// This axis and the whole one inside of it as one, if they are.
    fn join(&self, inner: &Self) -> Option<Self> {
        let even = self.to == inner.to * inner.size && self.from == inner.from * inner.extent;
        let joins = inner.is_whole() && self.step == 1 && self.border == Border::Filled && even;
        joins.then(|| Self {
            size: self.size * inner.size,
            extent: self.extent * inner.size,
            first: self.first * inner.size as i64,
            ..inner.clone()
        })
    }

    /// What follows the size in `boxes.cu`.
    pub fn words(&self) -> [i64; 6] {
        let [extent, to, from] = [self.extent, self.to, self.from].map(|word| word as i64);
        [extent, self.first, self.step, self.border as i64, to, from]
    }
}

/// Axes, given in the order of memory, as few as they can be; the elements of the last one lie side by side.
pub fn joined(axes: Vec<Axis>) -> Vec<Axis> {
    let mut found: Vec<Axis> = vec![];
    for axis in axes
        .into_iter()
        .rev()
        .filter(|axis| !(axis.is_whole() && axis.size == 1))
    {
        match found.last_mut().and_then(|inner| Some((axis.join(inner)?, inner))) {
            Some((joined, inner)) => *inner = joined,
            None => found.push(axis),
        }
    }
    found.reverse();
    if found.last().is_none_or(|last| last.to != 1) {
        found.push(Axis::whole(1, 1, 1, 1));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_joins_what_is_around_it() {
        // [4, 10, 6, 8] cut to [4, 3, 6, 8] from 2 on.
        let axes = vec![
            Axis::whole(4, 4, 144, 480),
            Axis::whole(10, 3, 48, 48).sliced(2, 1),
            Axis::whole(6, 6, 8, 8),
            Axis::whole(8, 8, 1, 1),
        ];
        let inner = Axis {
            first: 96,
            ..Axis::whole(480, 144, 1, 1)
        };
        assert_eq!(joined(axes), [Axis::whole(4, 4, 144, 480), inner]);
        let scalars = vec![Axis::whole(1, 1, 1, 1); 3];
        assert_eq!(joined(scalars), [Axis::whole(1, 1, 1, 1)]);
        assert_eq!(joined(vec![]), [Axis::whole(1, 1, 1, 1)]);
    }

    #[test]
    fn steps_and_borders_stay_apart() {
        let inner = Axis::whole(8, 8, 1, 1);
        for outer in [
            Axis::whole(10, 3, 8, 8).sliced(9, -2),
            Axis::whole(2, 5, 8, 8).padded(1, Border::Edge),
            Axis::whole(2, 6, 8, 8).repeated(),
        ] {
            assert_eq!(joined(vec![outer.clone(), inner.clone()]), [outer, inner.clone()]);
        }
        let cut = Axis::whole(10, 3, 8, 8).padded(-4, Border::Reflected);
        assert_eq!(joined(vec![cut, inner]).len(), 1);
    }

    #[test]
    fn places_are_counted_and_clamped() {
        let first = |start, step| Axis::whole(7, 2, 1, 1).sliced(start, step).first;
        assert_eq!(
            [first(-1, -1), first(100, -1), first(-100, 1), first(i64::MIN, 1)],
            [6, 6, 0, 0]
        );
    }
}
