//! What is kept of the past to be quick, the most recently used first.

/// Items, the most recently used first.
pub(super) struct Recent<T>(Vec<T>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(vec![])
    }
}

impl<T> Recent<T> {
    /// Brings the first item that fits to the front; says whether there is one.
    pub fn select(&mut self, fits: impl FnMut(&T) -> bool) -> bool {
        let found = self.0.iter().position(fits);
        if let Some(at @ 1..) = found {
            self.0[..=at].rotate_right(1);
        }
        found.is_some()
    }

    /// Puts an item in front, and gives those beyond `most` that do not stay.
    pub fn insert(&mut self, item: T, most: usize, stays: impl Fn(&T) -> bool) -> Vec<T> {
        self.0.insert(0, item);
        let mut kept = 0;
        let leaves = |item: &mut T| {
            kept += 1;
            kept > most && !stays(item)
        };
        self.0.extract_if(.., leaves).collect()
    }

    /// Drops the items that do not stay; says how many.
    pub fn retain(&mut self, stays: impl FnMut(&T) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(stays);
        before - self.0.len()
    }

    /// The item in front.
    pub fn first(&self) -> Option<&T> {
        self.0.first()
    }

    /// As [`Recent::first`].
    pub fn first_mut(&mut self) -> Option<&mut T> {
        self.0.first_mut()
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// As [`Recent::iter`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn the_least_recently_used_leaves_unless_it_stays() {
        let mut recent = Recent::default();
        for item in [1, 2, 3] {
            assert!(recent.insert(item, 3, |_| false).is_empty());
        }
        assert!(recent.select(|&item| item == 1) && !recent.select(|&item| item == 4));
        assert_eq!(recent.insert(5, 3, |_| false), [2]);
        assert!(recent.insert(6, 3, |&item| item == 3).is_empty());
        assert_eq!(recent.iter().copied().collect::<Vec<_>>(), [6, 5, 1, 3]);
        assert_eq!((recent.retain(|&item| item > 3), recent.first()), (2, Some(&6)));
    }
}
